"""The options that several commands share: a story, a model, and the settings of the samplers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fabula.cli import Parser
from fabula.errors import UserError, file_errors
from fabula.models.defaults import sampling_defaults, states_of_model
from fabula.sampling.protocol import DEFAULT, resolve, sampler_named, samplers, settings_for
from fabula.sampling.settings import CANDIDATES, WRITE_CANDIDATES, WRITE_SAMPLES, choices, declared, offered, types_of

if TYPE_CHECKING:
    from fabula.api import StoryModel


def add_model(parser: Parser) -> None:
    """The options of every command that uses a model."""
    parser.add("--model", "an installed model or a checkpoint", default="default", metavar="NAME|DIR")
    add_device(parser, "cpu")
    parser.add_flag("--json", "print the answer as JSON; the same seed gives the same bytes")


def add_device(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Where and with how many threads to compute; without a default the command chooses its device itself."""
    if default is not None:
        parser.add_argument("--device", default=default, help=f"cpu, cuda, mps or auto (default: {default})")
    text = "CPU threads (default: OMP_NUM_THREADS, else 2 for fill, write, tag and score, 1 for other commands)"
    parser.add_argument("--threads", type=int, metavar="N", help=text)


def add_sampling(parser: Parser, write: bool = False) -> None:
    """The options of commands that write: `fabula fill`, or `fabula write`, whose defaults are others."""
    text = (
        "a tag for each sentence: + - . or a label, ? for any; '- - ? + +' or --arc=--?++; begin with a factor's "
        "name for its labels, emotion=joy,?,fear; repeat the option for several factors"
    )
    parser.add("--arc", text, action="append", metavar="TAGS")
    repeated: dict[str, Any] = {"action": "append", "default": []}
    parser.add("--starts", "words that sentence N has to begin with", metavar='N:"WORDS"', **repeated)
    text = "somebody in the story, with a pronoun (he, she, they) and a description if you like; may be repeated"
    parser.add("--person", text, metavar="NAME[:PRONOUN[:ABOUT]]", **repeated)
    text = "a place or a fact that holds, and that no line says; may be repeated"
    parser.add("--note", text, metavar="SENTENCE", **repeated)
    text = "how it is told, by a model on a server: past or present, first or third, short, medium or long"
    parser.add("--voice", f"{text} (present,first,short)", metavar="WORDS")
    add_sampler(parser, write)
    parser.add_flag("--verbose", "also print scores, diagnostics and factors that the arc leaves free")
    parser.add("--color", "colours (auto: only in a terminal)", choices=("auto", "always", "never"), default="auto")


def people(args: argparse.Namespace) -> list[dict[str, str]]:
    """`Nora:she:a shy baker` as a name, a pronoun and a description."""
    return [dict(zip(("name", "pronoun", "about"), entry.split(":", 2), strict=False)) for entry in args.person]


def add_sampler(parser: Parser, write: bool = False) -> None:
    """Those of them that can be said of many stories at once."""
    candidates = WRITE_CANDIDATES if write else CANDIDATES
    parser.add("--candidates", f"stories to show ({candidates})", type=int, default=candidates, metavar="N")
    *others, last = [f"{name} ({sampler.about})" for name, sampler in samplers().items()]
    parser.add("--sampler", f"{', '.join(others)} or {last}; default: {DEFAULT}", default=DEFAULT, metavar="NAME")
    parser.add("--seed", "the same seed gives the same stories (0)", type=int, default=0, metavar="N")
    add_settings(parser, {"samples": WRITE_SAMPLES} if write else {})


def add_settings(parser: Parser, overrides: Mapping[str, Any]) -> None:
    """An option for every setting of a sampler that the command line offers (`sampling/settings.py`).

    Its help names the default of the model that `--model` names, or of the default model. `overrides` are defaults of
    the command itself.
    """
    actions: dict[str, argparse.Action] = {}
    for sampler in samplers().values():
        for key in offered(sampler.settings, "cli"):
            if key not in actions:
                hint = types_of(sampler.settings)[key]
                actions[key] = parser.add(f"--{key.replace('_', '-')}", "", dest=key, **_kind(hint))
    parser.set_defaults(settings=tuple(actions))

    def complete(words: Sequence[str]) -> None:
        defaults = sampling_defaults(_model_named(words))
        for key, action in actions.items():
            action.help = setting_help(key, defaults, overrides)

    parser.before_help = complete


def setting_help(key: str, defaults: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any]) -> str:
    """What a setting means, and its default for each sampler that has it, under a model's own defaults."""
    owners = {name: s for name, s in samplers().items() if key in offered(s.settings, "cli")}
    by_default: dict[str, list[str]] = {}
    for name, sampler in owners.items():
        value = overrides.get(key, getattr(settings_for(sampler, defaults, {}), key))
        value = declared(offered(sampler.settings, "cli")[key]).shown if value is None else value
        by_default.setdefault(f"{value:g}" if isinstance(value, float) else str(value), []).append(name)
    meaning = declared(offered(next(iter(owners.values())).settings, "cli")[key]).help
    (usual, _), *others = by_default.items()
    values = "; ".join([usual, *(f"for {', '.join(names)} {value}" for value, names in others)])
    whose = "" if len(owners) == len(samplers()) else f"{', '.join(owners)}: "
    return f"{whose}{meaning} ({values})"


def _model_named(words: Sequence[str]) -> str:
    """The model that a command line names, else the default one."""
    for place, word in enumerate(words):
        if word.startswith("--model="):
            return word.removeprefix("--model=")
        if word == "--model" and place + 1 < len(words):
            return words[place + 1]
    return "default"


def _kind(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of this type."""
    if choices(hint):
        return {"choices": choices(hint)}
    kinds = {hint, *get_args(hint)}
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    return {"type": int, "metavar": "N"} if int in kinds else {"type": float, "metavar": "X"}


def chosen(args: argparse.Namespace, make_task: Callable[..., Any], sentences: Any) -> dict[str, Any]:
    """The arguments of `add_sampling` as `fill` and `write` of a model take them; None where nobody chose a value.

    What is wrong with them, the arc or the story is said before a model is loaded, which takes seconds.
    """
    from fabula.sampling.context import read_context

    values = {key: getattr(args, key) for key in ("candidates", "sampler", "seed", *args.settings)}
    arc, openings = None if args.arc is None else ";".join(args.arc), starts(args)
    context = {"people": people(args), "notes": args.note, "voice": args.voice}
    sampler = sampler_named(args.sampler)
    keys = ("candidates", "seed", *offered(sampler.settings, "cli"))
    resolve(sampler, sampling_defaults(args.model), {key: values[key] for key in keys})
    read_context(*context.values())
    if (states := states_of_model(args.model)) is not None:
        make_task(sentences, states, arc, openings)
    return {**values, "arc": arc, "starts": openings, **context}


def load_model(args: argparse.Namespace) -> StoryModel:
    """The model the arguments name, loaded for one answer."""
    from fabula.cli.begin import start_torch

    threads = start_torch(args.threads)
    from fabula.api import load

    return load(args.model, args.device, threads)


def factors(model: StoryModel, arc: str | None) -> list[str]:
    """The factors that an arc speaks of: those that are shown beside the lines."""
    return [] if arc is None else model.states.spoken(model.states.parse(arc))


def starts(args: argparse.Namespace) -> dict[int, str]:
    """`2:"She thought"` as a number and its words."""
    openings: dict[int, str] = {}
    for entry in args.starts:
        match = re.fullmatch(r"\s*(\d+)\s*:(.*)", entry, re.DOTALL)
        if match is None:
            raise UserError(f'--starts wants N:"WORDS", not {entry!r}', field="starts")
        openings[int(match[1])] = match[2].strip()
    return openings


def pairs(option: str, form: str, entries: Sequence[str]) -> dict[str, str]:
    """`NAME=TEXT` of an option that may be repeated, as a name and its text."""
    chosen: dict[str, str] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        if not name or not equals:
            raise UserError(f"--{option} wants {form}, not {entry!r}", field=option)
        chosen[name.strip()] = text
    return chosen


def add_story(parser: Parser, blanks: bool) -> None:
    """The ways a story comes in."""
    what = "the sentences in order, _ for a missing one" if blanks else "the sentences in order"
    parser.add("sentences", f"{what}; - reads them from standard input", nargs="*", metavar="SENTENCE")
    parser.add("--file", "read the sentences from this file, one per line", type=Path, metavar="FILE")
    parser.add_flag("--paragraph", "the text is a paragraph: split it into sentences by rule")
    parser.set_defaults(blanks=blanks)


def story(args: argparse.Namespace) -> list[str]:
    """The sentences, from the arguments, a file or standard input."""
    from fabula.sampling.task import is_blank, split_story

    if args.file is not None and args.sentences:
        raise UserError("sentences and --file were both given; use one", field="file")
    if args.file is not None or args.sentences == ["-"]:
        text = read_text(args.file)
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
        fault = f'every sentence is a single word; put each one in quotes: fabula {args.command} "Tom was sad." ...'
        raise UserError(fault, field="sentences")
    if "_" in lines and not args.blanks:
        fault = f"_ is a sentence that is missing, and fabula {args.command} reads whole stories: fill it in first"
        raise UserError(fault, field="sentences")
    return ["_" if line is None else line for line in split_story(" ".join(lines))] if args.paragraph else lines


def read_text(path: Path | None) -> str:
    """A file's text, or that of standard input for None and `-`."""
    with file_errors(f"cannot read {path}", field="file"):
        data = sys.stdin.buffer.read() if path is None or str(path) == "-" else path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path or 'standard input'} is not valid UTF-8", field="file") from error
