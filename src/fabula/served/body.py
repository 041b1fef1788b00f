"""The body of an answer: one JSON object, or a stream of events, by OpenAI's chat or completions API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class BrokenError(Exception):
    """An answer that broke off on the way: the same request may succeed."""


class NotACompletionError(ValueError):
    """An answer that no server of this API gives."""


class Reply(NamedTuple):
    """One of the answers to a request."""

    text: str
    refused: bool = False
    """Whether the model declined, or a filter withheld what it wrote."""
    tokens: tuple[tuple[str, float], ...] | None = None
    """Tokens with their log-probabilities; None where the server gives none."""


def read_body(text: str, kind: str) -> tuple[tuple[Reply, ...], Mapping[str, int]]:
    """The replies of a body in the order of their numbers, and the tokens that the server counted."""
    streamed = "event-stream" in kind or text.lstrip().startswith(("data:", ":", "event:"))
    choices: dict[int, dict[str, Any]] = {}
    usage: Mapping[str, int] = {}
    for event in _events(text) if streamed else [_json(text, kind)]:
        if not isinstance(event, dict) or event.get("error") is not None:
            said = event.get("error") if isinstance(event, dict) else event
            said = said.get("message", said) if isinstance(said, dict) else said
            raise BrokenError(f"the server reports an error: {' '.join(str(said).split())[:160]}")
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            _add(choices.setdefault(int(choice.get("index") or 0), {"text": "", "tokens": []}), choice)
    if not choices:
        raise ValueError("no choices")
    if streamed and not all(choice.get("finish") for choice in choices.values()):
        raise BrokenError("the answer broke off in the middle of its stream")
    return tuple(_reply(choice) for _, choice in sorted(choices.items())), usage if isinstance(usage, dict) else {}


def _events(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        payload = line.removeprefix("data:").strip()
        if line.startswith("data:") and payload != "[DONE]":
            try:
                yield json.loads(payload)
            except ValueError:
                raise BrokenError("the answer broke off in the middle of its stream") from None


def _json(text: str, kind: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if "html" in kind or text.lstrip()[:1] == "<":
            hint = "a web page, not with JSON: is the address right? It often ends in /v1"
            raise NotACompletionError(hint) from None
        raise BrokenError("the answer is not valid JSON") from None


def _add(choice: dict[str, Any], part: Mapping[str, Any]) -> None:
    """One event's part of a choice: a delta, a whole message, or plain text."""
    message = part.get("delta") or part.get("message") or {}
    choice["text"] += message.get("content") or part.get("text") or ""
    choice["refused"] = choice.get("refused") or bool(message.get("refusal"))
    choice["finish"] = part.get("finish_reason") or choice.get("finish")
    logprobs = part.get("logprobs") or {}
    listed = [(entry["token"], entry["logprob"]) for entry in logprobs.get("content") or ()]
    listed += zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=False)
    choice["tokens"] += [(str(token), float("nan") if log_p is None else float(log_p)) for token, log_p in listed]


def _reply(choice: Mapping[str, Any]) -> Reply:
    refused = choice["refused"] or choice.get("finish") == "content_filter"
    return Reply(choice["text"], bool(refused), tuple(choice["tokens"]) or None)
