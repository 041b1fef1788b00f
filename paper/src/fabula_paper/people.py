"""What people are asked: blind pairs for `fabula judge`, and the form for the errors of the lowest-rated stories."""

from __future__ import annotations

import json
from pathlib import Path

from fabula.models.io import write_file
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, SETTINGS, Scale
from fabula_paper.records import Records
from fabula_paper.stories import StoryDataset

COMPARISONS = (
    ("slds", "gibbs-peek", "lm", "rerank"),
    ("slds", "gibbs-peek", "s2s", "rerank"),
    ("default", "fill", "lm-1024", "rerank"),
    ("narrator", "fill", "slds", "gibbs-peek"),
    ("narrator", "fill", HUMAN, ""),
)
"""The paper's two, by its own protocol; ours, which looks ahead, against our best LM; the narrator, which ships,
against the paper's SLDS and against people's own middles."""
GIVEN = [place for place in range(5) if place not in SETTINGS[MIDDLE]]

SHEET = """# Errors of the lowest-rated stories

After the judging, `fabula judge report` names the 20 stories of a system that people rated lowest. Read each and mark
whether its ending is connected with the sentences before it, whether it has mildly off-topic sentences (0 or 1 each),
and how many of its written sentences are ungrammatical (0 to 3). The paper's appendix B: 16 of 20, 14 of 20, 9 of 60.

| story | ending not connected | mildly off-topic | ungrammatical |
|---|---|---|---|
"""


def written_by(records: Records, system: str, sampler: str) -> dict[str, list[str]] | None:
    """The middles that a system wrote, by story; None where they are not there."""
    unit = f"sample/{system}.{MIDDLE}.{sampler}"
    return {text["id"]: text["lines"] for text in records.texts(unit)} if records.done(unit) else None


def export(records: Records, dataset: StoryDataset, scale: Scale, folder: Path) -> list[Path]:
    """PAIRS-*.jsonl with the corpus's sentences in them, so for local use only; and the error sheet."""
    written = []
    for one, by, other, its in COMPARISONS:
        told = [written_by(records, system, sampler) for system, sampler in ((one, by), (other, its))]
        if told[0] is None or (told[1] is None and other != HUMAN):
            continue
        # People's own story is the story itself.
        common = [name for name in told[0] if told[1] is None or name in told[1]][: scale.pairs]
        lines = [
            {
                "id": f"{name}-{one}-{other}",
                "systems": ["people" if system == HUMAN else BY_NAME[system].title for system in (one, other)],
                "given": GIVEN,
                "stories": [
                    dataset.true(name) if own is None else dataset.filled(name, own[name], MIDDLE) for own in told
                ],
            }
            for name in common
        ]
        path = folder / "pairs" / f"PAIRS-{one}-{other}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        written.append(path)
    sheet = folder / "error-sheet.md"
    rows = "".join(f"| {n} | | | |\n" for n in range(1, 21))
    write_file(sheet, (SHEET + rows).encode())
    return [*written, sheet]
