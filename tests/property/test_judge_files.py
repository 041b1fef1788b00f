"""A pair is what its line says, whatever text it holds, also after SQLite."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.apps.judge.pairs import PAIR, Pair
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
    """The fields of some pairs."""
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
        about = {"id": f"{draw(TEXT)} {n}", "systems": ("A,\"'b", "<B>"), "given": given}
        made.append({**about, "stories": tuple(map(tuple, stories))})
    return made


@settings(max_examples=60, deadline=None)
@given(lines())
def test_a_pair_is_what_its_line_says(drawn: list[dict[str, Any]]) -> None:
    pairs = [Pair(**fields) for fields in drawn]
    assert [PAIR.validate_python(json.loads(json.dumps(fields))) for fields in drawn] == pairs
    with tempfile.TemporaryDirectory() as folder:
        store, items = Store(Path(folder) / "study.db"), lay_out(pairs, StudySettings())
        store.create_study(items, StudySettings())
        assert store.items() == items
        store.close()
