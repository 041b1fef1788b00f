"""Story Cloze items as word ids and tags, for `fabula reproduce --cloze` on a machine without spaCy and VADER.

    PYTHONPATH=src python benchmarks/encode_cloze.py cloze_test.csv --data prepared/roc --out prepared/cloze.json

The file holds sentences of the corpus as ids: it stays with the data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fabula.corpus.dataset import Corpus
from fabula.errors import UserError
from fabula.reproduce.judging import encode_cloze


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        print(f"{args.out}: {encode_cloze(args.csv, Corpus.open(args.data).vocabulary, args.out)} items")
    except UserError as error:
        sys.exit(f"encode_cloze: {error}")


if __name__ == "__main__":
    main()
