"""Raw stories as the narrator's training reads them."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from fabula.corpus.toy import toy_splits


def write_csv(path: Path, stories: Iterable[Sequence[str]]) -> None:
    """A CSV file of stories of five sentences."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["storyid", "storytitle", *(f"sentence{i}" for i in range(1, 6))])
        writer.writerows([n, "toy", *sentences] for n, sentences in enumerate(stories))


def write_raw_stories(folder: Path, number: int = 48, most: int = 1000) -> Path:
    """A CSV file for every split, with the toy stories of five sentences; the folder."""
    for split, stories in toy_splits(number, 1).items():
        write_csv(folder / f"{split}.csv", [s.sentences for s in stories if len(s.sentences) == 5][:most])
    return folder
