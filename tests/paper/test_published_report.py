"""The report in docs/reproduction is what its records make, whole, and small enough to travel."""

from __future__ import annotations

import csv
import html
import os
import shutil
from pathlib import Path

import pytest

from fabula_paper import claims, markdown, tables
from fabula_paper.bars import bars
from fabula_paper.figures import Found
from fabula_paper.plan import FULL
from fabula_paper.published import check
from fabula_paper.records import Records
from fabula_paper.report import mixed_weights

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def found() -> Found:
    return Found(Records(FOLDER), FULL)


@pytest.fixture(scope="module")
def report() -> str:
    return (FOLDER / "report.md").read_text(encoding="utf-8")


def test_every_cell_of_the_papers_tables_is_filled(found: Found, report: str) -> None:
    """Infilling, perplexity, control, whole, as the report prints them: no cell that the paper fills is empty."""
    cells = 0
    for table in [*tables.infilling(found), tables.perplexity(found), tables.control(found)]:
        assert markdown.table(table) in report
        for row in table.rows:
            for figure in row.figures:
                if figure.paper is not None:
                    cells += 1
                    assert figure.ours is not None, (table.title, row.lead)
    # Eight systems, four settings, four metrics; the latent ones again by other samplers; and the other tables.
    assert cells >= 8 * 16


def test_the_records_are_of_one_corpus_and_one_set_of_weights_each(found: Found) -> None:
    units = [found.get(name) for name in found.records.names()]
    assert {unit["data_hash"] for unit in units if unit} == {"59931d3e420d3694e9a18fb8fa9eb13a"}
    assert mixed_weights([unit for unit in units if unit]) == []


def test_the_verdicts_are_those_of_the_records(found: Found, report: str) -> None:
    for verdict in [*claims.claims(found), *bars(found)]:
        assert f"- **{verdict.verdict}**: {verdict.claim}" in report
    # What was chosen with test figures in view is said beside the verdict that rests on it.
    for verdict in bars(found):
        if "1 % of labels" in verdict.claim or "sharp words" in verdict.claim or "infilling table" in verdict.claim:
            assert any(line.endswith(("test figures in view", "seen on test")) for line in verdict.evidence)


def test_every_cell_is_made_again_from_its_record(tmp_path: Path) -> None:
    """`fabula reproduce --check` on the published report; one digit changed, in a cell or in a record, is found."""
    found = check(FOLDER)
    assert found.wrong == ()
    assert found.cells > 1000
    assert found.aggregates > 200
    for name in ("index.html", "report.md", "records.jsonl.xz"):
        shutil.copy(FOLDER / name, tmp_path / name)
    told = (tmp_path / "report.md").read_text(encoding="utf-8")
    (tmp_path / "report.md").write_text(told.replace("| 23.41 [", "| 23.42 [", 1), encoding="utf-8")
    records = Records(tmp_path)
    altered = dict(records.read("lookahead/human") or {})
    altered["log_p"] += 0.01
    records.write("lookahead/human", altered)
    wrong = check(tmp_path).wrong
    assert any("23.42" in line for line in wrong)
    assert any(line.startswith("lookahead/human: log_p") for line in wrong)


def test_it_is_small_and_needs_no_network() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 2 * 2**20
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    for word in ("src=", "http://", "https://", "@import", "<script"):
        assert word not in text


@pytest.mark.corpus
def test_no_given_sentence_is_printed() -> None:
    """Sentences of ten words and more: shorter ones a model may have written by itself."""
    data = os.environ.get("FABULA_DATA")
    if data is None:
        pytest.skip("FABULA_DATA is not set: no real corpus here")
    path = Path(data) / "test.csv"
    with path.open(encoding="utf-8", newline="") as file:
        sentences = {cell for row in csv.reader(file) for cell in row[2:] if len(cell.split()) >= 10}
    assert len(sentences) > 1000
    text = "".join(html.unescape((FOLDER / name).read_text(encoding="utf-8")) for name in ("index.html", "report.md"))
    assert not [sentence for sentence in sentences if sentence in text]
