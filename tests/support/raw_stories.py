"""Raw stories as the narrator's training reads them."""

import csv
from pathlib import Path

from fabula.corpus.toy import toy_splits


def write_raw_stories(folder: Path, number: int = 48, most: int = 1000) -> Path:
    """A CSV file for every split, with the toy stories of five sentences; the folder."""
    for split, stories in toy_splits(number, 1).items():
        with open(folder / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["storyid", "storytitle", *(f"sentence{i}" for i in range(1, 6))])
            five = [story.sentences for story in stories if len(story.sentences) == 5][:most]
            writer.writerows([n, "toy", *sentences] for n, sentences in enumerate(five))
    return folder
