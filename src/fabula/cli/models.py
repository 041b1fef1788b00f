"""`fabula models`: what is installed, its size, recipe and figures."""

from __future__ import annotations

import argparse
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from fabula.cli import add_command
from fabula.cli.show import print_json
from fabula.servers import PREFIX, Server, find_server, save_server

EXAMPLES = """examples:
  fabula models
  fabula models --labels                    the labels that `--arc` accepts
  fabula models --settings                  the defaults of `fabula fill`
  fabula models --json
  FABULA_MODELS=runs fabula models          checkpoints in a folder of your own
"""
ADD = "examples:\n  fabula models add-server local --address http://127.0.0.1:11434/v1 --model llama3.2\n"
CHECK = "examples:\n  fabula models check local\n"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    description = (
        "List the installed models: those that came with Fabula and those under FABULA_MODELS "
        "(else ~/.cache/fabula/models)."
    )
    parser = add_command(subparsers, "models", description, EXAMPLES)
    parser.add_flag("--labels", "also list every factor's labels, and the verbs of each verb class")
    parser.add_flag("--settings", "also list each model's default settings for every sampler")
    parser.add_flag("--json", "print the list as JSON")
    parser.set_defaults(run=run)
    servers = parser.add_subparsers(dest="what", metavar="add-server | check")
    adding = add_command(servers, "add-server", "Name a language model on a server.", ADD, "name a server's model")
    adding.add_argument("name", help="what `--model served:NAME` will call it")
    for field in fields(Server)[1:]:
        usual = None if field.default is MISSING else field.default
        kind = {"action": argparse.BooleanOptionalAction} if isinstance(usual, bool) else {"type": type(usual or "")}
        about = "required" if usual is None else f"default: {usual!r}; see docs/served.md"
        adding.add(f"--{field.name.replace('_', '-')}", about, default=usual, required=usual is None, **kind)
    adding.set_defaults(run=run_add)
    checking = add_command(servers, "check", "Ask a server what it can do.", CHECK, "ask a server what it can do")
    checking.add_argument("name", help="a server's name")
    checking.set_defaults(run=run_check)


def run_add(args: argparse.Namespace) -> int:
    server = Server(**{field.name: getattr(args, field.name) for field in fields(Server)})
    print(f"{save_server(server)}: {PREFIX}{server.name}; now fabula models check {server.name}")
    return 0


def run_check(args: argparse.Namespace) -> int:
    from fabula.served.client import Client

    client = Client(find_server(args.name))
    works: dict[str, Any] = client.abilities()
    said = ", ".join(f"{name.replace('_', ' ')} {'yes' if works[name] else 'no'}" for name in works)
    print(f"{client.label}: {client.server.model} answers; {said}; {client.usage['tokens']} tokens")
    if replace(client.server, **works) != client.server:
        print(f"noted in {save_server(replace(client.server, **works))}")
    return 0


def run(args: argparse.Namespace) -> int:
    from fabula.catalogue import describe, installed, models_fault, models_folder

    models = [describe(name, folder) for name, folder in sorted(installed().items())]
    if fault := models_fault():
        print(f"note: {fault}", file=sys.stderr)
    if args.json:
        print_json(models)
        return 0
    if not models:
        print(f"no model is installed (looked in the package and in {models_folder()})")
        return 0
    for model in models:
        print(_line(model))
        if args.labels and "damaged" not in model:
            print(_labels(model))
        if args.settings and "damaged" not in model:
            for sampler, values in model["settings"].items():
                print(f"{'':<12} {sampler}: {', '.join(f'{key} {value}' for key, value in values.items())}")
    return 0


def _labels(model: dict[str, Any]) -> str:
    lines = []
    for factor in model.get("factors", [{"name": "", "labels": model["labels"]}]):
        meanings = factor.get("meanings", {})
        lines.append(f"{factor['name'] or 'labels'}:" + ("" if meanings else f" {', '.join(factor['labels'])}"))
        lines += [f"  {label:<9} {meanings.get(label, '')}" for label in factor["labels"] if meanings]
    return "\n".join(f"{'':<12} {line}" for line in lines)


def _line(model: dict[str, Any]) -> str:
    if "damaged" in model:
        return f"{model['name']:<12} damaged: {model['damaged']}"
    figures = ", ".join(
        f"{name} {value:.4g}" for name, value in model["figures"].items() if isinstance(value, int | float)
    )
    if model["kind"] == "served":
        return f"{model['name']:<12} {model['kind']:<8} {model['recipe']}"
    size = f"{model['bytes'] / 2**20:.1f} MiB"
    what = f"{model['words']:,} words" if "words" in model else f"base {model['base']}"
    what += f"  {' x '.join(factor['name'] for factor in model['factors'])}" if "factors" in model else ""
    head = f"{model['name']:<12} {model['kind']:<8} {size:>10}  {what}  recipe {model['recipe']}"
    return f"{head}\n{'':<12} {figures or 'no figures recorded'}\n{'':<12} {Path(model['folder'])}"
