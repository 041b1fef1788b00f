"""What is written in a story format is read again; what is no story is a record with its line, never a crash."""

import csv
import json
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.corpus.read import MAX_SENTENCES, MAX_WORDS, Rejected, Story, read_stories
from fabula.corpus.tokenize import normalise
from fabula.corpus.toy import toy_stories
from fabula.errors import UserError

# Any text of one line that is not blank, quotation marks and commas included.
_SENTENCE = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=' ",'), min_size=1, max_size=30)
_SENTENCE = _SENTENCE.map(normalise).filter(bool)
_STORY = st.lists(_SENTENCE, min_size=2, max_size=7)


def _read(name: str, content: str | bytes, *, paragraphs: bool = False) -> list[Story | Rejected]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_stories(path, paragraphs=paragraphs))


def _told(items: list[Story | Rejected]) -> list[list[str]]:
    return [item.sentences for item in items if isinstance(item, Story)]


def _csv(rows: list[list[str]]) -> str:
    stream = StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


@given(st.lists(st.lists(_SENTENCE, min_size=5, max_size=5), min_size=1, max_size=5), st.booleans())
def test_rocstories_csv(stories: list[list[str]], bom: bool) -> None:
    header = ["storyid", "storytitle", *(f"sentence{number}" for number in range(1, 6)), "extra"]
    rows = [[f"id{number}", "A title", *story, "ignored"] for number, story in enumerate(stories)]
    items = _read("roc.csv", ("\ufeff" if bom else "") + _csv([header, *rows]))
    assert _told(items) == stories
    assert [item.id for item in items if isinstance(item, Story)] == [f"id{number}" for number in range(len(stories))]


@given(st.lists(st.tuples(_STORY, st.booleans()), min_size=1, max_size=5))
def test_json_lines(stories: list[tuple[list[str], bool]]) -> None:
    records = []
    for sentences, tagged in stories:
        tags = ["up" if number % 2 else None for number in range(len(sentences))]
        records.append({"sentences": sentences, "other": 1} | ({"tags": tags, "id": 7} if tagged else {}))
    items = _read("some.jsonl", "\n\n".join(json.dumps(record) for record in records))
    assert _told(items) == [sentences for sentences, _ in stories]
    for number, (item, (sentences, tagged)) in enumerate(zip(items, stories, strict=True)):
        assert isinstance(item, Story)
        assert item.line == 2 * number + 1
        assert item.id == ("7" if tagged else f"some:{2 * number + 1}")
        assert item.tags == (["up" if place % 2 else None for place in range(len(sentences))] if tagged else None)


@given(st.lists(_STORY, min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_plain_text_has_a_sentence_per_line(stories: list[list[str]], end: str) -> None:
    items = _read("plain.txt", (end * 3).join(end.join(story) for story in stories))
    assert _told(items) == stories
    begin = 1
    for item, story in zip(items, stories, strict=True):
        assert isinstance(item, Story)
        assert item.line == begin
        begin += len(story) + 2


def test_paragraphs_are_split_by_rule_and_may_be_wrapped() -> None:
    stories = [story.sentences for story in toy_stories(30, seed=5)]
    text = "\n\n".join("\n".join(" ".join(story).split(" ")) for story in stories)  # a word per line
    assert _told(_read("told.txt", text, paragraphs=True)) == stories


ROW_FAULTS = [
    ('{"sentences": ["One.", ""]}', "sentence 2 is empty"),
    ('{"sentences": ["One.", " \\t "]}', "sentence 2 is empty"),
    ('{"sentences": ["One."]}', "one sentence only"),
    ('{"sentences": []}', "no sentence"),
    (json.dumps({"sentences": ["One.", "word " * 10_000]}), "10,000 words"),
    (json.dumps({"sentences": ["One.", "x" * 5_000]}), "5,000 characters"),
    (json.dumps({"sentences": ["Again."] * (MAX_SENTENCES + 1)}), "65 sentences"),
    ('{"sentences": ["One.", 2]}', "sentence 2 is not a text"),
    ('{"sentences": ["One.", "Half \\ud800."]}', "half a character"),
    ('{"sentences": "One. Two."}', 'no list "sentences"'),
    ('["One.", "Two."]', "not a JSON object"),
    ('{"sentences": ["One.", "Two."', "not valid JSON"),
    ("[" * 100_000, "not valid JSON"),
    ('{"sentences": ["One.", "Two."], "tags": ["up"]}', "1 tags for 2 sentences"),
    ('{"sentences": ["One.", "Two."], "tags": "up"}', "not a list of labels"),
    ('{"sentences": ["One.", "Two."], "tags": ["up", " "]}', "blank"),
]


HEADER = "storyid,storytitle,sentence1,sentence2,sentence3\n"
CSV_FAULTS = [
    ("i,t,One.,,Three.", "sentence 2 is empty"),
    ("i,t,One.,Two.", "4 fields where the header has 5"),
    ("i,t,One,Two,Three,Four", "6 fields where the header has 5"),
    ('i,t,One,"Two" and so,Three', "quotation marks do not pair up"),
]
GOOD = {"rows.jsonl": '{"sentences": ["One.", "Two."]}\n', "rows.csv": 'i,t,"One\nand a half.",Two.,Three.\n'}


@pytest.mark.parametrize(
    ("file", "row", "reason"), [("rows.jsonl", *f) for f in ROW_FAULTS] + [("rows.csv", *f) for f in CSV_FAULTS]
)
def test_a_faulty_row_is_one_record_and_reading_goes_on(file: str, row: str, reason: str) -> None:
    """A good row of CSV is two lines of the file."""
    head = HEADER if file == "rows.csv" else ""
    before, fault, after = _read(file, f"{head}{GOOD[file]}{row}\n{GOOD[file]}")
    assert _told([before, after]) == [["One and a half.", "Two.", "Three."] if head else ["One.", "Two."]] * 2
    assert isinstance(fault, Rejected)
    assert (fault.file, fault.line, reason in fault.reason) == (file, 4 if head else 2, True)


def test_the_longest_stories_and_sentences_that_are_allowed() -> None:
    assert _told(_read("t.txt", "A\n" * MAX_SENTENCES)) == [["A"] * MAX_SENTENCES]
    longest = " ".join(["w"] * MAX_WORDS)
    assert _told(_read("t.txt", f"{longest}\nEnd.")) == [[longest, "End."]]
    assert _told(_read("t.txt", f"{longest} w\nEnd.")) == []


def test_an_unclosed_quotation_mark_does_not_swallow_the_rest_in_silence() -> None:
    with pytest.raises(UserError, match=r"rows.csv, line 3: .*never closed"):
        _read("rows.csv", HEADER + "i,t,One.,Two.,Three.\n" + 'i,t,"One.,Two.,Three.\n' + "i,t,One.,Two.,Three.\n" * 9)


@given(st.binary(max_size=200), st.sampled_from(["f.csv", "f.jsonl", "f.txt"]))
@settings(max_examples=200)
def test_any_bytes_give_stories_records_or_a_user_error(content: bytes, name: str) -> None:
    try:
        items = _read(name, content)
    except UserError:
        return
    assert all(isinstance(item, (Story, Rejected)) for item in items)
