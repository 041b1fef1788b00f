"""The options that several commands share: a story, a model, and the settings of the samplers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fabula.errors import UserError
from fabula.sampling.protocol import DEFAULT, samplers
from fabula.sampling.settings import choices, declared, offered, types_of

if TYPE_CHECKING:
    from fabula.api import Narrator


def add_model(parser: argparse.ArgumentParser) -> None:
    """The options of every command that uses a model."""
    parser.add_argument("--model", default="default", metavar="NAME|DIR", help="an installed model or a checkpoint")
    add_device(parser, "cpu")
    parser.add_argument(
        "--json", action="store_true", help="print the answer as JSON; the same seed gives the same bytes"
    )


def add_device(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Where and with how many threads to compute; without a default the command chooses its device itself."""
    if default is not None:
        parser.add_argument("--device", default=default, help=f"cpu, cuda, mps or auto (default: {default})")
    parser.add_argument(
        "--threads", type=int, default=None, metavar="N",
        help="CPU threads (default: OMP_NUM_THREADS, else 2 for fill, write, tag and score, 1 for all that runs long)",
    )  # fmt: skip


def add_sampling(parser: argparse.ArgumentParser, candidates: int, defaults: Mapping[str, object]) -> None:
    """The options of commands that write; `defaults`: settings whose default is the command's and not the sampler's."""
    parser.add_argument(
        "--arc", action="append", metavar="TAGS",
        help="a tag for each sentence: + - . or the corpus's labels, ? free; '- - ? + +' or --arc=--?++; of one factor "
        "by its name, emotion=joy,?,fear; may be said for each factor",
    )  # fmt: skip
    parser.add_argument(
        "--starts", action="append", default=[], metavar='N:"WORDS"', help="words that sentence N has to begin with"
    )
    add_sampler(parser, candidates, defaults)
    parser.add_argument(
        "--verbose", action="store_true", help="also how the sampler moved, and factors that the arc leaves free"
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (auto: only in a terminal)"
    )


def add_sampler(parser: argparse.ArgumentParser, candidates: int, defaults: Mapping[str, object]) -> None:
    """Those of them that can be said of many stories at once."""
    parser.add_argument(
        "--candidates", type=int, default=candidates, metavar="N", help=f"stories to show ({candidates})"
    )
    *others, last = [f"{name} ({sampler.about})" for name, sampler in samplers().items()]
    parser.add_argument(
        "--sampler", default=DEFAULT, metavar="NAME", help=f"{', '.join(others)} or {last}; default: {DEFAULT}"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same stories (0)")
    add_settings(parser, defaults)


def add_settings(parser: argparse.ArgumentParser, defaults: Mapping[str, object]) -> None:
    """An option for every setting of a sampler that the command line offers (`sampling/settings.py`)."""
    shown: dict[str, dict[str, list[str]]] = {}  # setting -> default -> the samplers that have it
    about: dict[str, tuple[str, Any]] = {}
    for name, sampler in samplers().items():
        for key, entry in offered(sampler.settings, "cli").items():
            about.setdefault(key, (declared(entry).help, types_of(sampler.settings)[key]))
            default = defaults.get(key, entry.default if entry.default is not None else declared(entry).shown)
            text = f"{default:g}" if isinstance(default, float) else str(default)
            shown.setdefault(key, {}).setdefault(text, []).append(name)
    for key, (text, hint) in about.items():
        (usual, _), *rest = shown[key].items()
        everybody = sum(map(len, shown[key].values())) == len(samplers())
        text = text if everybody else f"{', '.join(name for group in shown[key].values() for name in group)}: {text}"
        told = "; ".join([usual, *(f"for {', '.join(names)} {default}" for default, names in rest)])
        parser.add_argument(f"--{key.replace('_', '-')}", dest=key, help=f"{text} ({told})", **_kind(hint))
    parser.set_defaults(settings=tuple(about))


def _kind(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    if choices(hint):
        return {"choices": choices(hint)}
    kinds = {hint, *get_args(hint)}
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": int, "metavar": "N"} if int in kinds else {"type": float, "metavar": "X"}


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """What the arguments of `add_sampling` say, as `Narrator.fill` and `Narrator.write` take it; None: not said."""
    said = {key: getattr(args, key) for key in ("candidates", "sampler", "seed", *args.settings)}
    return {**said, "arc": None if args.arc is None else ";".join(args.arc), "starts": starts(args)}


def narrator(args: argparse.Namespace) -> Narrator:
    """The model the arguments name, loaded for one answer."""
    from fabula.cli.begin import start_torch

    threads = start_torch(args.threads)
    from fabula.api import load

    return load(args.model, args.device, threads)


def factors(narrator: Narrator, arc: str | None) -> list[str]:
    """The factors that an arc speaks of: those that are shown beside the lines."""
    return [] if arc is None else narrator.states.spoken(narrator.states.parse(arc))


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
    from fabula.sampling.task import is_blank

    if args.file is not None and args.sentences:
        raise UserError("sentences and --file were both given; use one", field="file")
    if args.file is not None or args.sentences == ["-"]:
        text = _read(args.file)
        lines = [text] if args.paragraph else [line.strip() for line in text.splitlines() if line.strip()]
    else:
        lines = list(args.sentences)
    if not lines:
        raise UserError(f"no story was given; see fabula {args.command} --help", field="sentences")
    lines = ["_" if is_blank(line) else line for line in lines]
    inside = any(is_blank(word) for line in lines for word in line.split() if line != "_")
    if args.blanks and inside and len(lines) == 1:
        args.paragraph = True  # "Tom was sad. _ Tom smiled." in one pair of quotes is a paragraph with a blank
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

    parts = re.split(r"(?:(?<=\s)|^)(_+)(?=\s|$)", " ".join(lines))
    return [sentence for part in parts for sentence in (["_"] if is_blank(part) else split_paragraph(part))]


def _read(path: Path | None) -> str:
    try:
        data = sys.stdin.buffer.read() if path is None or str(path) == "-" else path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", field="file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path or 'standard input'} is not valid UTF-8", field="file") from error
