"""The report in docs/reproduction is what its records make, whole, and small enough to travel."""

import csv
import html
import os
import shutil
from pathlib import Path

import pytest

from fabula_paper.plan import FULL
from fabula_paper.records import Records
from fabula_paper.report import PAGES, Report, check, mixed_weights

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def report() -> Report:
    return Report(Records(FOLDER), FULL)


def test_every_cell_of_the_papers_tables_is_filled(report: Report) -> None:
    """Except what readers say."""
    rows = [(table.title, row) for table in report.tables if table.section != "Readers" for row in table.rows]
    cells = [(title, row.lead, f) for title, row in rows for f in row.figures if f.paper is not None]
    assert len(cells) >= 8 * 16
    assert [cell for cell in cells if cell[2].value is None] == []


def test_the_pages_are_short(report: Report) -> None:
    words = {name: len((FOLDER / name).read_text(encoding="utf-8").split()) for name in ("README.md", "report.md")}
    assert words["README.md"] <= 900
    assert words["report.md"] <= 6000
    assert len(report.claims) == 5
    assert {claim.verdict for claim in report.claims} <= {"holds", "does not hold", "inconclusive", "not run"}


def test_the_records_are_of_one_corpus_and_one_set_of_weights_each(report: Report) -> None:
    assert {unit["data_hash"] for unit in report.units} == {"59931d3e420d3694e9a18fb8fa9eb13a"}
    assert mixed_weights(report.units) == []


def test_every_cell_is_computed_again_from_its_record(tmp_path: Path) -> None:
    """`fabula reproduce --check` finds one digit that is changed, in a cell or in a record."""
    for name in ("README.md", "index.html", "report.md", "records.jsonl.xz"):
        shutil.copy(FOLDER / name, tmp_path / name)
    result = check(tmp_path)
    assert result.wrong == ()
    assert result.cells > 250
    assert result.aggregates > 80
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    (tmp_path / "report.md").write_text(page.replace("| 23.41 [", "| 23.42 [", 1), encoding="utf-8")
    records = Records(tmp_path)
    altered = dict(records.read("control/slds") or {})
    altered["vader"] = {**altered["vader"], "mean": altered["vader"]["mean"] + 0.01}
    records.write("control/slds", altered)
    wrong = check(tmp_path).wrong
    assert any("23.42" in line for line in wrong)
    assert any(line.startswith("control/slds: vader.mean") for line in wrong)


def test_it_is_small_and_needs_no_network() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 2 * 2**20
    text = (FOLDER / "index.html").read_text(encoding="utf-8").replace("http://www.w3.org/", "")
    for word in ("src=", "http://", "https://", "@import", "<script"):
        assert word not in text


@pytest.mark.corpus
def test_no_given_sentence_is_printed() -> None:
    """Sentences of ten words and more: a model may have written a shorter one by itself."""
    data = os.environ.get("FABULA_DATA")
    if data is None:
        pytest.skip("FABULA_DATA is not set: no real corpus here")
    with (Path(data) / "test.csv").open(encoding="utf-8", newline="") as file:
        sentences = {cell for row in csv.reader(file) for cell in row[2:] if len(cell.split()) >= 10}
    assert len(sentences) > 1000
    text = "".join(html.unescape((FOLDER / name).read_text(encoding="utf-8")) for name in PAGES)
    assert not [sentence for sentence in sentences if sentence in text]
