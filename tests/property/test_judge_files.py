"""Round trips of a study: through its file of pairs, through SQLite, through Mechanical Turk's CSV form."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.apps.judge import mturk
from fabula.apps.judge.judgement import Judgement
from fabula.apps.judge.pairs import Pair, parse_pair
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

# Anything that can stand in a line: quotes, commas, markup, formulas, other scripts.
TEXT = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp", "Zs"), blacklist_characters="\x85"),
    min_size=1,
    max_size=12,
).map(lambda text: f"{text} <b>,\"' =1+1")


@st.composite
def lines(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The fields of some pairs, checks among them."""
    made = []
    for n in range(draw(st.integers(2, 5))):
        length = draw(st.integers(2, 4))
        given = tuple(sorted(draw(st.sets(st.integers(0, length - 2)))))
        stories = []
        for story in range(2):
            words = [draw(TEXT) for _ in range(length + story * draw(st.integers(0, 1)))]
            stories.append([*words[:-1], f"{words[-1]} {story}"])
        for place in given:
            stories[1][place] = stories[0][place]
        better = draw(st.sampled_from([None, None, None, 0, 1])) if n else None
        made.append(
            {
                "id": f"{draw(TEXT)} {n}",
                "systems": ("A,\"'b", "<B>") if better is None else None,
                "given": given,
                "stories": (tuple(stories[0]), tuple(stories[1])),
                "better": better,
            }
        )
    return made


@settings(max_examples=60, deadline=None)
@given(lines())
def test_a_pair_is_what_its_line_says(drawn: list[dict[str, Any]]) -> None:
    for pair in (Pair(**fields) for fields in drawn):
        line: dict[str, object] = {"id": pair.id, "given": pair.given, "stories": pair.stories}
        if pair.better is None:
            line["systems"] = pair.systems
        else:
            line["check"] = {"better": pair.better}
        assert parse_pair(json.loads(json.dumps(line))) == pair


@settings(max_examples=30, deadline=None)
@given(drawn=lines(), seed=st.integers(0, 50), data=st.data())
def test_results_come_back_exactly(drawn: list[dict[str, Any]], seed: int, data: st.DataObject) -> None:
    """Export, then import into a new study of the same file and seed: the same answers, times and corrections."""
    made = [Pair(**fields) for fields in drawn]
    chosen = StudySettings(seed=seed, annotators=3)
    items = lay_out(made, chosen)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (Store(Path(folder) / name) for name in ("first.db", "second.db"))
        for store in (first, second):
            store.create_study(items, chosen)
        answers = []
        for pair in made:
            for code in data.draw(st.sets(st.sampled_from(["A1X9", "bob", "c.d-e_f"]), max_size=3)):
                rating = st.integers(0, 3)
                one, other = (tuple(data.draw(rating) for _ in range(len(story) - 1)) for story in pair.stories)
                created = data.draw(st.integers(0, 2_000_000_000))
                answers.append(
                    Judgement(
                        id=0,
                        pair=pair.id,
                        annotator=code,
                        ratings=(one, other),
                        better=data.draw(st.sampled_from([0, 1, None])),
                        seconds=data.draw(st.integers(0, 5_000_000)) / 1000,
                        created=created,
                        updated=created + data.draw(st.integers(0, 99_999)),
                    )
                )
        assert first.restore(answers) == len(answers)
        exported = mturk.results(first.items(), first.judgements()[0])
        file = Path(folder) / "results.csv"
        file.write_text(exported, encoding="utf-8", newline="")
        read = mturk.read_results(file, second.items())
        assert second.restore(read) == len(answers)
        assert [replace(one, id=0) for one in second.judgements()[0]] == answers
        assert mturk.results(second.items(), second.judgements()[0]) == exported
        assert second.restore(read) == 0, "what is there already is not taken twice"
        assert second.items() == items
        for store in (first, second):
            store.close()
