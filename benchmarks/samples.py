"""docs/samples.md: the first answer to sixty made-up prompts, none left out, with a reader's verdicts.

    python benchmarks/samples.py write OUT.json [MODEL [DEVICE]]    fills in every line of benchmarks/samples.txt
    python benchmarks/samples.py page OUT.json VERDICTS.json LARGE.json VERDICTS.json      writes docs/samples.md

A file of verdicts is a list of "coherent", "partly" or "incoherent", one for each story.
"""

import json
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "samples.md"
LABELS = ("coherent", "partly", "incoherent")
HEAD = """# Sixty stories, unpicked

The plain lines are ours, made up for this page and from no corpus; the lines in italics are the first answer of

    fabula fill "FIRST" _ _ _ "LAST" --seed N        (N = the story's number less one, nothing else changed)

with the default model, and in the second part with `--model large`. None was left out or drawn again. The verdicts are
a language model's that did not know the systems and read both shuffled: **coherent** (the written lines lead from one
given line to the next), **partly** (about the same things, but
not a way there), **incoherent** (something else, or a contradiction).

"""


def write(out: Path, name: str = "default", device: str = "cpu") -> None:
    import fabula

    model, answers = fabula.load(name, device), []
    for seed, line in enumerate((HERE / "samples.txt").read_text(encoding="utf-8").splitlines()):
        sentences = [None if s.strip() == "_" else s.strip() for s in line.split("|")]
        best = model.fill(sentences, candidates=1, seed=seed).candidates[0]
        answers.append([[s.text, s.written] for s in best.sentences])
        print(f"{seed + 1:2} " + " / ".join(("*" if s.written else "") + s.text for s in best.sentences), flush=True)
    out.write_text(json.dumps(answers, ensure_ascii=False), encoding="utf-8")


def page(*files: Path) -> None:
    text = HEAD
    for name, answers, verdicts in zip(("default", "large"), files[::2], files[1::2], strict=True):
        stories, labels = (json.loads(path.read_text(encoding="utf-8")) for path in (answers, verdicts))
        tally = Counter(labels)
        text += f"## {name}\n\n{', '.join(f'{tally[label]} {label}' for label in LABELS)}.\n\n"
        for number, (story, verdict) in enumerate(zip(stories, labels, strict=True), start=1):
            lines = [f"*{line}*" if written else line for line, written in story]
            text += f"**{number}. {verdict}**  \n" + "  \n".join(lines) + "\n\n"
    PAGE.write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    action, first, *others = sys.argv[1:]
    write(Path(first), *others) if action == "write" else page(Path(first), *map(Path, others))
