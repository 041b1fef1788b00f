"""Requests to one server, by OpenAI's chat or completions API: limits, retries, and a cache by request.

An answer is stored under the hash of its request, seed included, before anybody uses it. So the same seed gives the
same story, and a job that was killed asks nothing twice that had been answered. No file and no message holds the key.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fabula.errors import UnavailableError, UserError
from fabula.models.decoders.base import CACHE_VARIABLE
from fabula.models.io import write_file
from fabula.servers import PREFIX, Server

LARGEST = 4 << 20  # bytes of an answer
PASSING = (408, 409, 429, 500, 502, 503, 504)  # statuses after which the same request may succeed
REFUSALS = (400, 422, 500, 501)  # those of servers that may not know an optional part of the request
OPTIONAL = ((), ("response_format", "logprobs", "stream_options", "n"), ("seed", "temperature", "max_tokens"))
"""Parts of a request that are left out, group after group, where a server refuses it."""


class BrokenError(Exception):
    """An answer that broke off on the way: the same request may succeed."""


class RefusedRequestError(UnavailableError):
    """The server does not take the request in this form."""


class Reply(NamedTuple):
    """One of the answers to a request."""

    text: str
    refused: bool = False  # the model declined, or a filter withheld what it wrote
    tokens: Sequence[tuple[str, float]] = ()  # with their log-probabilities, where the server gives them


class Client:
    """A server that can be asked."""

    def __init__(self, server: Server) -> None:
        self.server, self.label = server, f"{PREFIX}{server.name}"
        self.usage: Counter[str] = Counter()
        """Of this process: requests, tokens, uncounted (requests without tokens), cached, lines, lines asked again."""
        self.left_out = 0
        """How many groups of `OPTIONAL` the server turned out not to take."""
        self._slots, self._lock = threading.BoundedSemaphore(server.at_once), threading.Lock()
        self._asking: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    def ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], lines: int, how: Mapping[str, Any]
    ) -> Sequence[Reply]:
        """Answers to one prompt, by seed, temperature and n; of the completions API it is the messages in one text."""
        server, chat = self.server, self.server.api == "chat"
        body: dict[str, Any] = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}}
        body |= {name: value for name, value in how.items() if (name, value) != ("n", 1)}
        body |= {"max_tokens": server.tokens * lines} if server.tokens else {}
        body |= {"logprobs": True if chat else 0} if server.logprobs else {}
        if not chat:
            return self.answered("completions", {**body, "prompt": "\n".join(m["content"] for m in messages)})
        form = {"type": "json_schema", "json_schema": {"name": "lines", "strict": True, "schema": schema}}
        body |= {"response_format": form} if server.json_schema else {}
        return self.answered("chat", {**body, "messages": messages})

    def abilities(self) -> dict[str, bool]:
        """What the server gives that it is asked for, by one tiny request for each: fields of `Server`."""
        works, seed = {}, int.from_bytes(os.urandom(3))  # of another seed each time: nothing is to come from the cache
        prompt = [{"role": "user", "content": 'Answer with this JSON object: {"1": "yes"}'}]
        schema = {"type": "object", "properties": {"1": {"type": "string"}}, "required": ["1"]}
        for ability in ("json_schema", "logprobs", "n"):
            wanted: dict[str, Any] = {"json_schema": False, "logprobs": False, ability: True}
            trial = Client(replace(self.server, **wanted))
            how = {"seed": seed, "temperature": 0.5, "n": 2 if ability == "n" else 1}
            replies = trial.ask(prompt, schema, 1, how)
            given = {
                "n": len(replies) == 2,
                "logprobs": bool(replies[0].tokens),
                "json_schema": '"1"' in replies[0].text,
            }
            works[ability] = given[ability] and not trial.left_out
            self.usage += trial.usage
        return works

    def log_p_of(self, prefix: str, text: str) -> list[tuple[str, float]]:
        """The tokens of a text after a prefix with their log-probabilities, by a server that repeats its prompt."""
        body = {"model": self.server.model, "prompt": prefix + text, "echo": True, "logprobs": 1, "max_tokens": 1}
        reply, place, tokens = Reply(""), -len(prefix), []
        with suppress(UnavailableError):
            reply = self.answered("completions", body, last=0)[0]
        for token, log_p in reply.tokens:
            if place + len(token) > 0 and place < len(text):
                tokens.append((token, log_p))
            place += len(token)
        if not reply.text.startswith(prefix + text) or not tokens:
            why = f"{self.label} gives no log-probabilities of a given text; --model default does"
            raise UserError(why, field="model")
        return tokens

    def answered(self, api: str, body: Mapping[str, Any], last: int = len(OPTIONAL) - 1) -> Sequence[Reply]:
        """From the cache, else from the server; what it does not know is left out, up to the `last` group."""
        groups = min(self.left_out, last)
        sent = {name: value for name, value in body.items() if not any(name in g for g in OPTIONAL[: groups + 1])}
        path = _cache_path(self.server.address, api, sent)
        with self._asking[path]:  # the same request is sent once, whoever asks at the same time
            try:
                replies = tuple(Reply(*reply) for reply in json.loads(path.read_bytes()))
                self.count(cached=1)
                return replies
            except (OSError, ValueError, TypeError):  # not there, or damaged: asked
                pass
            try:
                with self._slots:
                    replies, usage = self._sent(api, sent)
            except RefusedRequestError:
                if groups == last:
                    raise
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, json.dumps(replies).encode())
                tokens = sum(int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
                self.count(requests=1, tokens=tokens, uncounted=int(tokens == 0))
                return replies
        self.left_out = max(self.left_out, groups + 1)
        return self.answered(api, body, last)

    def count(self, **counts: int) -> None:
        with self._lock:
            self.usage.update(counts)

    @cached_property
    def _openai(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise UserError("a model on a server needs openai: pip install 'fabula-stories[served]'") from error
        server = self.server
        limits = openai.Timeout(server.seconds, connect=min(10.0, server.seconds))
        return openai.OpenAI(base_url=server.address, api_key=server.key or "none", max_retries=0, timeout=limits)

    def _sent(self, api: str, body: Mapping[str, Any]) -> tuple[tuple[Reply, ...], Mapping[str, Any]]:
        """The server's answer; a request that fails on the way is repeated after the pause that the server asks for."""
        client, server, key, fault = self._openai, self.server, self.server.key or "\0", ""
        import openai

        resource = client.completions if api == "completions" else client.chat.completions
        for attempt in range(server.retries + 1):
            content, pause = bytearray(), 0.5 * 2**attempt
            try:
                with resource.with_streaming_response.create(**body) as response:
                    kind, began = str(response.headers.get("content-type", "")), time.monotonic()
                    for part in response.iter_bytes():
                        content += part
                        if time.monotonic() - began > server.seconds or len(content) > LARGEST:
                            raise TimeoutError
                return read_body(content.decode("utf-8", "replace").replace(key, "[key]"), kind)
            except openai.APIStatusError as error:
                where = f" (its key is in {server.variable})" if error.status_code in (401, 403) else ""
                said = " ".join(error.response.text.replace(key, "[key]").split())[:160]
                fault = f"{self.label} refuses the request{where}: {error.status_code} {said}"
                with suppress(ValueError):
                    pause = float(error.response.headers.get("retry-after", ""))
                if error.status_code not in PASSING or attempt == server.retries or pause > server.seconds:
                    refusal = RefusedRequestError if error.status_code in REFUSALS else UnavailableError
                    raise refusal(fault, field="model") from None
            except ValueError as error:
                raise UnavailableError(f"{self.label} answered with {error}", field="model") from None
            except Exception as error:  # of openai, or of the HTTP library below it, whichever version that is
                fault = f"{self.label}: {error if isinstance(error, BrokenError) else 'the answer broke off'}"
                if isinstance(error, openai.APIConnectionError):
                    fault = f"{self.label}: no connection to {server.address}"
                if "Timeout" in type(error).__name__:
                    fault = f"{self.label}: no answer within {server.seconds:g} seconds"
                    break
            time.sleep(pause if attempt < server.retries else 0)
        raise UnavailableError(fault, field="model")


client_of = lru_cache(maxsize=16)(Client)
"""The one client of a server in this process: its limit of requests at once holds for all who ask."""


def _cache_path(*request: Any) -> Path:
    """In FABULA_CACHE/served, else ~/.cache/fabula/served."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula") / "served"
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return folder / digest[:2] / f"{digest[2:]}.json"


def read_body(text: str, kind: str) -> tuple[tuple[Reply, ...], Mapping[str, Any]]:
    """The replies of one JSON object or a stream of events, and the tokens that the server counted."""
    streamed = "event-stream" in kind or text.lstrip().startswith(("data:", ":", "event:"))
    payloads = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")] if streamed else [text]
    choices: defaultdict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "tokens": [], "refused": False})
    usage: Mapping[str, Any] = {}
    try:
        for event in (json.loads(payload) for payload in payloads if payload != "[DONE]"):
            if event.get("error"):
                raise BrokenError(f"the server reports an error: {' '.join(str(event['error']).split())[:160]}")
            usage = event.get("usage") or usage
            for part in event.get("choices") or ():
                _add(choices[int(part.get("index") or 0)], part)
    except json.JSONDecodeError:
        if not streamed and ("html" in kind or text.lstrip()[:1] == "<"):
            raise ValueError("a web page, not with JSON: is the address right? It often ends in /v1") from None
        raise BrokenError("the answer broke off, or is not valid JSON") from None
    except (AttributeError, KeyError, TypeError, ValueError):  # parts of other types than they should be
        choices.clear()
    if not choices:
        raise ValueError(f"JSON that is no completion: {text.strip()[:80]!r}")
    if streamed and not all(choice["finish"] for choice in choices.values()):
        raise BrokenError("the answer broke off in the middle of its stream")
    return tuple(Reply(c["text"], c["refused"], tuple(c["tokens"])) for _, c in sorted(choices.items())), usage


def _add(choice: dict[str, Any], part: Mapping[str, Any]) -> None:
    """One event's part of a choice: a delta, a whole message, or plain text."""
    message, logprobs = part.get("delta") or part.get("message") or {}, part.get("logprobs") or {}
    choice["text"] += message.get("content") or part.get("text") or ""
    choice["finish"] = part.get("finish_reason") or choice.get("finish")
    choice["refused"] |= bool(message.get("refusal")) or choice["finish"] == "content_filter"
    listed = [(entry["token"], entry["logprob"]) for entry in logprobs.get("content") or ()]
    listed += zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=False)
    choice["tokens"] += [(str(token), float("nan") if log_p is None else float(log_p)) for token, log_p in listed]
