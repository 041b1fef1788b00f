"""What people are asked: blind pairs for `fabula judge`, and the form for the errors of the lowest-rated stories."""

from __future__ import annotations

import json
from pathlib import Path

from fabula.reproduce.plan import BY_NAME, MIDDLE, SETTINGS, Scale
from fabula.reproduce.records import Records
from fabula.reproduce.stories import StoryDataset
from fabula.training.checkpoint import write_file

COMPARISONS = (
    ("slds", "gibbs-peek", "lm", "rerank"),
    ("slds", "gibbs-peek", "s2s", "rerank"),
    ("default", "fill", "lm-1024", "rerank"),
)
"""The paper's two, by its own protocol; then ours, which looks ahead, against our best LM."""
GIVEN = [place for place in range(5) if place not in SETTINGS[MIDDLE]]

SHEET = """# Errors of the lowest-rated stories

After the judging, `fabula judge report` names the 20 stories of a system that people rated lowest. Read each and mark
whether its ending is connected with the sentences before it, whether it has mildly off-topic sentences (0 or 1 each),
and how many of its written sentences are ungrammatical (0 to 3). The paper's appendix B: 16 of 20, 14 of 20, 9 of 60.

| story | ending not connected | mildly off-topic | ungrammatical |
|---|---|---|---|
"""


def export(records: Records, dataset: StoryDataset, scale: Scale, folder: Path) -> list[Path]:
    """PAIRS-*.jsonl with the corpus's sentences in them, so for local use only; and the error sheet."""
    written = []
    for one, by, other, its in COMPARISONS:
        units = [f"sample/{one}.{MIDDLE}.{by}", f"sample/{other}.{MIDDLE}.{its}"]
        if not all(records.done(unit) for unit in units):
            continue
        texts = [{text["id"]: text["lines"] for text in records.texts(unit)} for unit in units]
        names = [BY_NAME[one].title, BY_NAME[other].title]
        common = [name for name in texts[0] if name in texts[1]][: scale.pairs]
        lines = [
            {
                "id": f"{name}-{one}-{other}",
                "systems": names,
                "given": GIVEN,
                "stories": [dataset.filled(name, of[name], MIDDLE) for of in texts],
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
