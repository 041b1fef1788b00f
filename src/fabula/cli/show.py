"""How a story looks in a terminal: given and written lines told apart, the arc drawn beside them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabula.results import Candidate, Filling, Reasons, Sentence

GREY, BOLD, GREEN, RED, CYAN = "90", "1", "32", "31", "36"
SCALE = ("negative", "neutral", "positive")
COLOURS = {"negative": RED, "neutral": GREY, "positive": GREEN}


def print_json(answer: Any) -> None:
    """An answer as the same bytes for the same seed."""
    json.dump(answer, sys.stdout, ensure_ascii=False, indent=1)
    print()


def print_filling(filling: Filling, args: argparse.Namespace, factors: Collection[str]) -> None:
    """As JSON, or as people read it, by the options `--json`, `--color` and `--verbose`."""
    if args.json:
        print(filling.to_json())
    else:
        print(show_filling(filling, colour=coloured(args.color), verbose=args.verbose, factors=factors))


def coloured(choice: str) -> bool:
    return choice == "always" or (choice == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)


def paint(text: str, code: str, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on and text else text


def show_filling(filling: Filling, *, colour: bool, verbose: bool, factors: Collection[str] = ()) -> str:
    """All candidates, then notes and, if asked for, how the sampler moved. `factors` are named beside the mood."""
    blocks = [
        show_candidate(candidate, number, len(filling.candidates), colour, verbose, factors)
        for number, candidate in enumerate(filling.candidates, start=1)
    ]
    notes = [paint(f"note: {note}", GREY, colour) for note in filling.notes]
    if filling.names:
        names = ", ".join(f"{name} (as {stand_in})" for name, stand_in in filling.names.items())
        notes.append(paint(f"note: names new to the model: {names}", GREY, colour))
    if verbose:
        notes.append(show_movement(filling))
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def show_candidate(
    candidate: Candidate, number: int, of: int, colour: bool, verbose: bool, factors: Collection[str] = ()
) -> str:
    """The lines below a number where there are others; what it was ranked by only where figures are asked for."""
    head, parts = [f"{number}."] if of > 1 else [], candidate.parts
    if verbose:
        head.append(f"score {candidate.score:.2f} (larger is better)")
    if verbose and parts is not None:
        names = ("holds together", "leads to the ending", "reads easily")
        figures = (parts.holds_together, parts.leads_to_ending, parts.reads_easily)
        head.append(", ".join(_figures(names, figures)))
    lines = [paint(" ".join(head), CYAN, colour)] if head else []
    for i, sentence in enumerate(candidate.sentences, start=1):
        mark = " " if not sentence.written else ">"
        text = paint(sentence.text, BOLD if sentence.written else GREY, colour)
        weakest = paint("  (the weakest line)", GREY, colour) if verbose and parts and parts.weakest == i else ""
        shown = {name: label for name, label in sentence.factors.items() if verbose or name in factors}
        lines.append(f" {mark} {show_tag(sentence.tag, colour, shown)} {text}{missed(sentence, colour)}{weakest}")
    return "\n".join(lines)


def missed(sentence: Sentence, colour: bool) -> str:
    """What the arc asked for, where the text has something else."""
    labels = ", ".join(filter(None, [sentence.asked, *sentence.asked_factors.values()]))
    return paint(f"  (asked for {labels})", GREY, colour) if sentence.met is False else ""


def show_tag(tag: str | None, colour: bool, factors: Mapping[str, str] = {}) -> str:
    """A dot on a scale from sad to glad, so that the arc runs down the page; other labels and factors by name."""
    scale = "".join("●" if place == tag else "·" for place in SCALE)
    mood = " " if tag is None else paint(scale, COLOURS[tag], colour) if tag in SCALE else f"[{tag}]"
    return " ".join([mood, *(f"[{label}]" for label in factors.values())])


def show_movement(filling: Filling) -> str:
    moved = filling.diagnostics
    parts = [f"sampler {filling.sampler}, {filling.samples} samples, seed {filling.seed}, model {filling.model}"]
    shares = [f"{i}: {share:.0%}" for i, share in enumerate(moved.changed, start=1) if share is not None]
    if shares:
        parts.append(f"sentences that changed {', '.join(shares)}")
    names = ("effective samples", "split-R-hat of Z", "effective samples of S")
    figures = (moved.effective_samples, moved.r_hat, moved.tag_effective_samples)
    return "\n".join([*parts, *_figures(names, figures)])


def _figures(names: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Figures with their names, without those that have no meaning."""
    return [f"{name} {value:.2f}" for name, value in zip(names, values, strict=True) if value is not None]


def watch(answers: Iterator[Filling], *, quiet: bool, doing: str = "filling in") -> Filling:
    """The last of the answers; where it takes over a second, a line with the samples and the time so far."""
    from tqdm import tqdm

    bar = tqdm(
        desc=doing, delay=1, leave=False, file=sys.stderr, disable=True if quiet else None, mininterval=0,
        bar_format="{desc}: {n_fmt} of {total_fmt} samples after {elapsed}",
    )  # fmt: skip
    done = threading.Event()

    def tick() -> None:  # a long story gives no answer for a minute, and the time must go on
        while not done.wait(1):
            bar.refresh()

    with bar:
        ticking = threading.Thread(target=tick, daemon=True)
        if not bar.disable:
            ticking.start()
        try:
            for answer in answers:
                bar.total = answer.samples
                bar.update(answer.drawn - bar.n)
        finally:
            done.set()
            if not bar.disable:
                ticking.join()
    return answer


def verdict(reasons: Reasons, *, first: bool, last: bool) -> str:
    """What the figures say, in a writer's words; the bounds are the studio's (`studio/page/why.js`)."""
    phrases = []
    if not first:
        before = ("follows from", "could follow from", "comes as a surprise after")
        phrases.append(f"{before[(reasons.fits_before <= -2.5) + (reasons.fits_before <= -4.5)]} what came before")
    if not last and reasons.fits_after is not None:
        leads = "leads to" if reasons.fits_after > 0.5 else "does not lead to" if reasons.fits_after < -0.5 else None
        phrases.append(f"{leads or 'neither helps nor hinders'} what follows")
    return " and ".join(phrases)
