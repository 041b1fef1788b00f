"""How a story looks in a terminal: given and written lines told apart, the arc drawn beside them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fabula.errors import UserError

if TYPE_CHECKING:
    from fabula.api import Candidate, Filling, Narrator

GREY, BOLD, GREEN, RED, CYAN = "90", "1", "32", "31", "36"
SCALE = ("negative", "neutral", "positive")
COLOURS = {"negative": RED, "neutral": GREY, "positive": GREEN}


def add_model(parser: argparse.ArgumentParser) -> None:
    """The options of every command that uses a model."""
    parser.add_argument("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument(
        "--threads", type=int, default=None, metavar="N",
        help="CPU threads (default: 1, because two beside a busy core are slower than one)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="print the answer as JSON; the same seed gives the same bytes"
    )


def add_sampling(parser: argparse.ArgumentParser, candidates: int, samples: str) -> None:
    """The options of commands that write."""
    parser.add_argument(
        "--arc", metavar="TAGS",
        help="a tag for each sentence: + - . or the corpus's labels, ? free; '- - ? + +' or --arc=--?++",
    )  # fmt: skip
    parser.add_argument(
        "--starts", action="append", default=[], metavar='N:"WORDS"', help="words that sentence N has to begin with"
    )
    parser.add_argument(
        "--candidates", type=int, default=candidates, metavar="N", help=f"stories to show ({candidates})"
    )
    parser.add_argument("--samples", type=int, metavar="N", help=f"stories to draw and choose from ({samples})")
    parser.add_argument(
        "--sampler", default="bridge", metavar="NAME",
        help="bridge (looks ahead first), gibbs (the paper's) or rerank (models without latents)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same stories (0)")
    parser.add_argument(
        "--top-k", type=int, metavar="K", help="words to choose among; 1 greedy, 0 all (the sampler's own)"
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T",
        help="of the words that are drawn: lower safer, higher bolder, 1 the model's own (0.9; for gibbs 1)",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="also how the sampler moved")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (auto: only in a terminal)"
    )


def narrator(args: argparse.Namespace) -> Narrator:
    """The model the arguments name, loaded."""
    if args.threads is not None and args.threads < 1:
        raise UserError(f"--threads must be at least 1, not {args.threads}", field="threads")
    import torch

    from fabula.api import load

    if args.threads is not None or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(args.threads or 1)
    return load(args.model, args.device)


def starts(args: argparse.Namespace) -> dict[int, str]:
    """`2:"She thought"` as a number and its words."""
    found: dict[int, str] = {}
    for entry in args.starts:
        match = re.fullmatch(r"\s*(\d+)\s*:(.*)", entry, re.DOTALL)
        if match is None:
            raise UserError(f'--starts wants N:"WORDS", not {entry!r}', field="starts")
        found[int(match[1])] = match[2].strip()
    return found


def add_story(parser: argparse.ArgumentParser, blanks: bool) -> None:
    """The ways a story comes in."""
    what = "the sentences in order, _ for a missing one" if blanks else "the sentences in order"
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help=f"{what}; - reads them from standard input")
    parser.add_argument("--file", type=Path, metavar="FILE", help="a sentence per line instead")
    parser.add_argument(
        "--paragraph", action="store_true", help="the text is a paragraph: split it into sentences by rule"
    )
    parser.set_defaults(blanks=blanks)


def story(args: argparse.Namespace) -> list[str]:
    """The sentences, from the arguments, a file or standard input."""
    if args.file is not None and args.sentences:
        raise UserError("sentences and --file were both given; use one", field="file")
    if args.file is not None or args.sentences == ["-"]:
        text = _read(args.file)
        lines = [text] if args.paragraph else [line.strip() for line in text.splitlines() if line.strip()]
    else:
        lines = list(args.sentences)
    if not lines:
        raise UserError(f"no story was given; see fabula {args.command} --help", field="sentences")
    words = [line for line in lines if line != "_"]
    if not args.paragraph and args.file is None and len(words) > 2 and not any(" " in line for line in words):
        told = f'every sentence is a single word; put each one in quotes: fabula {args.command} "Tom was sad." ...'
        raise UserError(told, field="sentences")
    if "_" in lines and not args.blanks:
        told = f"_ is a sentence that is missing, and fabula {args.command} reads whole stories: fill it in first"
        raise UserError(told, field="sentences")
    if not args.paragraph:
        return lines
    from fabula.corpus.tokenize import split_paragraph

    parts = re.split(r"(?:(?<=\s)|^)(_)(?=\s|$)", " ".join(lines))
    return [sentence for part in parts for sentence in (["_"] if part == "_" else split_paragraph(part))]


def _read(path: Path | None) -> str:
    try:
        data = sys.stdin.buffer.read() if path is None or str(path) == "-" else path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", field="file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path or 'standard input'} is not valid UTF-8", field="file") from error


def coloured(choice: str) -> bool:
    return choice == "always" or (choice == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def paint(text: str, code: str, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text


def show_filling(filling: Filling, *, colour: bool, verbose: bool) -> str:
    """All candidates, then notes and, if asked for, how the sampler moved."""
    blocks = [
        show_candidate(candidate, number, len(filling.candidates), colour)
        for number, candidate in enumerate(filling.candidates, start=1)
    ]
    notes = [paint(f"note: {note}", GREY, colour) for note in filling.notes]
    if filling.names:
        told = ", ".join(f"{name} (as {known})" for name, known in filling.names.items())
        notes.append(paint(f"note: names new to the model: {told}", GREY, colour))
    if verbose:
        notes.append(show_movement(filling))
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def show_candidate(candidate: Candidate, number: int, of: int, colour: bool) -> str:
    head = f"{number}. " if of > 1 else ""
    lines = [paint(f"{head}score {candidate.score:.2f}", CYAN, colour)]
    for sentence in candidate.sentences:
        mark = " " if not sentence.written else ">"
        text = paint(sentence.text, BOLD if sentence.written else GREY, colour)
        lines.append(f" {mark} {show_tag(sentence.tag, colour)} {text}")
    return "\n".join(lines)


def show_tag(tag: str | None, colour: bool) -> str:
    """A dot on a scale from sad to glad, so that the arc runs down the page; other labels by name."""
    if tag is None:
        return " "
    if tag not in SCALE:
        return f"[{tag}]"
    scale = "".join("●" if place == tag else "·" for place in SCALE)
    return paint(scale, COLOURS[tag], colour)


def show_movement(filling: Filling) -> str:
    moved = filling.diagnostics
    parts = [f"sampler {filling.sampler}, {filling.samples} samples, seed {filling.seed}, model {filling.model}"]
    shares = [f"{i}: {share:.0%}" for i, share in enumerate(moved.changed, start=1) if share is not None]
    if shares:
        parts.append(f"sentences that changed {', '.join(shares)}")
    for name, value in (
        ("acceptance", moved.acceptance),
        ("effective samples", moved.effective_samples),
        ("split-R-hat of Z", moved.r_hat),
        ("split-R-hat of S", moved.tag_r_hat),
    ):
        if value is not None:
            parts.append(f"{name} {value:.2f}")
    return "\n".join(parts)


def watch(answers: Iterator[Filling], *, quiet: bool) -> Filling:
    """The last of the answers; a progress bar where it takes over a second."""
    from tqdm import tqdm

    bar = tqdm(desc="filling in", unit="sample", delay=1, leave=False, file=sys.stderr, disable=True if quiet else None)
    with bar:
        for answer in answers:
            bar.total = answer.samples
            bar.update(answer.drawn - bar.n)
    return answer
