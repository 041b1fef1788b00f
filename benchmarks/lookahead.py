"""The look-ahead score of a narrator's samplers, judged by a language model that none of them ever sees.

    PYTHONPATH=src python benchmarks/lookahead.py --model RUN --judge RUN [--lm RUN] --data prepared/roc \
        --split valid --stories 500 --samples 50 --device cuda --out lookahead.json [--texts written.txt]

Sentences 2 to 4 of 5 are missing. `--lm` adds a language model, trained apart from the judge, left to right and as the
best of 50 and of 1,000. `--texts` keeps what was written, with story ids; sentences of the corpus are never kept.
Needs torch, numpy, safetensors, jaxtyping, tqdm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fabula.corpus.dataset import Corpus
from fabula.corpus.tokenize import detokenise
from fabula.corpus.vocabulary import Vocabulary
from fabula.device import pick_device
from fabula.errors import UserError
from fabula.metrics.lookahead import choose_stories
from fabula.metrics.measure import check_same_corpus
from fabula.metrics.record import commit
from fabula.models.lm import LM
from fabula.models.slds import SLDS
from fabula.training.checkpoint import Checkpoint, load, read_config
from lookahead_systems import HUMAN, OTHER, LookaheadSettings, System, lookahead, summary


def checked(run: Path, corpus: Corpus, device: torch.device) -> Checkpoint:
    """A checkpoint that speaks the corpus's words."""
    checkpoint = load(run, device)
    check_same_corpus(checkpoint, corpus)
    checkpoint.model.requires_grad_(False)
    return checkpoint


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Everything the command line asks for, as a record; the texts are written on the way."""
    device = pick_device(args.device)
    corpus = Corpus.open(args.data)
    if args.lm is not None and read_config(args.lm)["weights"] == read_config(args.judge)["weights"]:
        raise UserError("--lm is the judge: what ranks stories must not judge them", field="lm")
    narrator, judge = checked(args.model, corpus, device), checked(args.judge, corpus, device)
    lm = None if args.lm is None else checked(args.lm, corpus, device)
    if not isinstance(narrator.model, SLDS) or not isinstance(judge.model, LM):
        raise UserError("--model is a model with latents (slds, lds), --judge a language model (lm)")
    settings = LookaheadSettings(
        samples=args.samples,
        chains=args.chains,
        reranked=tuple(args.reranked),
        plain=args.plain,
        tags=args.tags,
        careful=tuple(args.careful),
        bf16=args.bf16,
        seed=args.seed,
        memory_gib=args.memory or (24.0 if device.type == "cuda" else 1.0),
    )
    stories = corpus.split(args.split)
    rows = choose_stories(stories, args.stories, settings.sentences, args.seed)
    systems = lookahead(
        narrator.model,
        judge.model,
        corpus.vocabulary,
        stories,
        rows,
        settings,
        lm=None if lm is None else lm.model,
        bar=sys.stderr.isatty(),
        people=narrator.people,
    )
    if args.texts is not None:
        ids = [stories.ids[row] for row in rows]
        args.texts.write_text(written(systems, ids, corpus.vocabulary), encoding="utf-8")
    names = {"model": narrator, "judge": judge, "lm": lm}
    return {
        **summary(systems),
        "n": len(rows),
        "split": args.split,
        "seed": args.seed,
        "kind": "estimate",
        "commit": commit(),
        "recipe": narrator.recipe.name,
        "recipes": {role: None if one is None else one.recipe.to_dict() for role, one in names.items()},
        "data_hash": corpus.hash,
        "settings": asdict(settings),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }


def written(systems: Sequence[System], ids: Sequence[str], vocabulary: Vocabulary) -> str:
    """Story by story what each system wrote; the corpus's own sentences are left out."""
    machines = [system for system in systems if system.name not in (HUMAN, OTHER)]
    parts = []
    for n, name in enumerate(ids):
        parts.append(f"# {name}")
        for system in machines:
            lines = " | ".join(detokenise(vocabulary.decode(line)) for line in system.lines[n])
            parts.append(f"{system.name}: {lines}")
        parts.append("")
    return "\n".join(parts)


def table(record: dict[str, Any]) -> str:
    """One row for each system."""
    head = f"{'middle':<18}{'log P':>9}{'(se)':>7}{'score':>8}{'(se)':>7}{'copied 4':>10}{'distinct 2':>12}"
    lines = [head + f"{'words':>7}{'repeated':>10}{'ended':>7}{'s':>8}"]
    for name, row in record["systems"].items():
        cells = {key: float("nan") if value is None else value for key, value in row.items()}
        lines.append(
            f"{name:<18}{cells['log_p']:>9.2f}{cells['log_p_se']:>7.2f}{cells['score']:>8.3f}{cells['score_se']:>7.3f}"
            f"{cells['overlap_4']:>10.4f}{cells['distinct_2']:>12.4f}{cells['words']:>7.2f}{cells['repeated']:>10.4f}"
            f"{cells['ended']:>7.3f}{cells['seconds']:>8.1f}"
        )
    for key, label in (("z_gain", "Z's own gain, nats"), ("share_lost_without_z", "share lost without Z")):
        lines.append(f"{label}: {record[key]['value']} (se {record[key]['se']})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the narrator: a checkpoint with latents")
    parser.add_argument("--judge", type=Path, required=True, help="a language model's checkpoint, never used to rank")
    parser.add_argument("--lm", type=Path, help="another language model's checkpoint, to write left to right")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="valid")
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--careful", type=float, nargs="*", default=[], help="temperatures of writing as fill does")
    parser.add_argument("--chains", type=int, default=10, help="Gibbs chains; they share the samples")
    parser.add_argument("--reranked", type=int, nargs="*", default=[50, 1000], help="best of how many, for --lm")
    parser.add_argument("--plain", type=int, default=10, help="draws per story of systems that choose nothing")
    parser.add_argument("--tags", choices=["free", "read"], default="free", help="drawn, or read off given sentences")
    parser.add_argument("--bf16", action="store_true", help="write in half precision; the judge never does")
    parser.add_argument("--memory", type=float, help="GiB of scores at once; default 24 on CUDA, 1 on the host")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--texts", type=Path)
    args = parser.parse_args()
    try:
        record = measure(args)
    except (UserError, ValueError) as error:
        sys.exit(f"lookahead: {error}")
    if args.out is not None:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


if __name__ == "__main__":
    main()
