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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fabula.errors import UnavailableError, UserError
from fabula.models.decoders.bases import CACHE_VARIABLE
from fabula.models.io import write_file
from fabula.servers import PREFIX, Server

LARGEST = 4 << 20  # bytes of an answer
PASSING = (408, 409, 429, 500, 502, 503, 504)  # statuses after which the same request may succeed
REFUSALS = (400, 422, 500, 501)  # those of servers that may not know an optional part of the request
OPTIONAL = ((), ("response_format", "logprobs", "stream_options", "n"), ("seed", "temperature", "max_tokens"))
"""Parts of a request that are left out, group after group, where a server refuses it."""


Hear = Callable[[str], None]


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
        try:
            import openai
        except ImportError as error:
            raise UserError("a model on a server needs openai: pip install 'fabula-stories[served]'") from error
        self.server, self.label = server, f"{PREFIX}{server.name}"
        limits, key = openai.Timeout(server.seconds, connect=min(10.0, server.seconds)), server.key or "none"
        self._openai = openai.OpenAI(base_url=server.address, api_key=key, max_retries=0, timeout=limits)
        self.usage: Counter[str] = Counter()
        """Of this process: requests, tokens, uncounted (requests without tokens), cached, lines, lines asked again."""
        self.left_out = 0
        """How many groups of `OPTIONAL` the server turned out not to take."""
        self._slots, self._lock = threading.BoundedSemaphore(server.at_once), threading.Lock()
        self._asking: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

    def ask(
        self, messages: Any, schema: Any, lines: int, how: Mapping[str, Any], hear: Hear | None = None
    ) -> Sequence[Reply]:
        """Answers to one prompt, by seed, temperature and n; of the completions API it is the messages in one text.

        `hear` is called with the text so far of the first answer, whenever more of it has come.
        """
        server, chat = self.server, self.server.api == "chat"
        body: dict[str, Any] = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}}
        body |= {name: value for name, value in how.items() if (name, value) != ("n", 1)}
        body |= {"max_tokens": server.tokens * lines} if server.tokens else {}
        body |= {"logprobs": True if chat else 0} if server.logprobs else {}
        if not chat:
            return self.answered("completions", {**body, "prompt": "\n".join(m["content"] for m in messages)}, hear)
        form = {"type": "json_schema", "json_schema": {"name": "lines", "strict": True, "schema": schema}}
        body |= {"response_format": form} if server.json_schema and schema else {}
        return self.answered("chat", {**body, "messages": messages}, hear)

    def abilities(self) -> dict[str, Any]:
        """What the server gives that it is asked for, by one tiny request for each: fields of `Server`."""
        works: dict[str, Any] = {"json_schema": False, "logprobs": False, "n": False}
        prompt = [{"role": "user", "content": 'Answer with this JSON object: {"1": "yes"}'}]
        schema = {"type": "object", "properties": {"1": {"type": "string"}}, "required": ["1"]}
        how = {"seed": int.from_bytes(os.urandom(3)), "temperature": 0.5}  # a seed that the cache does not know
        for name in works:
            trial = Client(replace(self.server, json_schema=name == "json_schema", logprobs=name == "logprobs"))
            replies = trial.ask(prompt, schema, 1, {**how, "n": 2 if name == "n" else 1})
            given = {
                "json_schema": '"1"' in replies[0].text,
                "logprobs": bool(replies[0].tokens),
                "n": len(replies) == 2,
            }
            works[name] = given[name] and not trial.left_out
            self.usage += trial.usage
        return works

    def answered(self, api: str, body: Mapping[str, Any], hear: Hear | None = None) -> Sequence[Reply]:
        """From the cache, else from the server; what it does not know is left out of the request."""
        groups = self.left_out
        sent = {name: value for name, value in body.items() if not any(name in g for g in OPTIONAL[: groups + 1])}
        path = _cache_path(self.server.address, api, sent)
        with self._asking[path]:  # the same request is sent once, whoever asks at the same time
            with suppress(OSError, ValueError, TypeError):  # not there, or damaged: asked
                replies = tuple(Reply(*reply) for reply in json.loads(path.read_bytes()))
                self.count(cached=1)
                return replies
            try:
                with self._slots:
                    replies, usage = self._sent(api, sent, hear)
            except RefusedRequestError:
                if groups + 1 == len(OPTIONAL):
                    raise
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, json.dumps(replies).encode())
                tokens = sum(int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
                self.count(requests=1, tokens=tokens, uncounted=int(tokens == 0))
                return replies
        self.left_out = max(self.left_out, groups + 1)
        return self.answered(api, body, hear)

    def count(self, **counts: int) -> None:
        with self._lock:
            self.usage.update(counts)

    def _sent(
        self, api: str, body: Mapping[str, Any], hear: Hear | None = None
    ) -> tuple[tuple[Reply, ...], Mapping[str, Any]]:
        """The server's answer; a request that fails on the way is repeated after the pause that the server asks for."""
        server, key, attempt = self.server, self.server.key or "\0", 0
        resource: Any = self._openai.completions if api == "completions" else self._openai.chat.completions
        while True:
            content, pause = bytearray(), 0.5 * 2**attempt
            try:
                with resource.with_streaming_response.create(**body) as response:
                    began = time.monotonic()
                    for part in response.iter_bytes():
                        content += part
                        if hear is not None:
                            hear(text_so_far(content.replace(key.encode(), b"[key]")))
                        if time.monotonic() - began > server.seconds or len(content) > LARGEST:
                            raise TimeoutError
                return read_body(content.decode("utf-8", "replace").replace(key, "[key]"))
            except ValueError as error:
                raise UnavailableError(f"{self.label} answered with {error}", field="model") from None
            except Exception as error:  # of openai, or of the HTTP library below it, whichever version that is
                status, name = getattr(error, "status_code", 0), type(error).__name__
                fault = str(error) if isinstance(error, BrokenError) else "the answer broke off"
                if status:
                    where = f" (its key is in {server.variable})" if status in (401, 403) else ""
                    said = " ".join(error.response.text.replace(key, "[key]").split())  # type: ignore[attr-defined]
                    fault = f"it refuses the request{where}: {status} {said[:160]}"
                    with suppress(ValueError):
                        pause = float(error.response.headers.get("retry-after", ""))  # type: ignore[attr-defined]
                elif "Timeout" in name:
                    fault = f"no answer within {server.seconds:g} seconds"
                elif name == "APIConnectionError":
                    fault = f"no connection to {server.address}"
                final = status not in PASSING if status else "Timeout" in name
                if final or attempt == server.retries or pause > server.seconds:
                    kind = RefusedRequestError if status in REFUSALS else UnavailableError
                    raise kind(f"{self.label}: {fault}", field="model") from None
            attempt += 1
            time.sleep(pause)


client_of = lru_cache(maxsize=16)(Client)
"""The one client of a server in this process: its limit of requests at once holds for all who ask."""


def _cache_path(*request: Any) -> Path:
    """In FABULA_CACHE/served, else ~/.cache/fabula/served."""
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula") / "served"
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return folder / digest[:2] / f"{digest[2:]}.json"


def text_so_far(content: bytes | bytearray) -> str:
    """What the first answer of an unfinished stream of events says."""
    text = ""
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        with suppress(ValueError, TypeError, AttributeError, LookupError):  # `read_body` says what is wrong
            (part,) = (p for p in json.loads(line.removeprefix(b"data:"))["choices"] if not p.get("index"))
            text += (part.get("delta") or {}).get("content") or part.get("text") or ""
    return text


def read_body(text: str) -> tuple[tuple[Reply, ...], Mapping[str, Any]]:
    """The replies of one JSON object or a stream of events, and the tokens that the server counted."""
    streamed = text.lstrip().startswith(("data:", ":", "event:"))
    payloads = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")] if streamed else [text]
    choices: defaultdict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "tokens": [], "end": "", "no": False})
    usage: Mapping[str, Any] = {}
    try:
        for event in (json.loads(payload) for payload in payloads if payload != "[DONE]"):
            if event.get("error"):
                raise BrokenError(f"the server reports an error: {' '.join(str(event['error']).split())[:160]}")
            usage = event.get("usage") or usage
            for part in event.get("choices") or ():
                choice, message = choices[part.get("index") or 0], part.get("delta") or part.get("message") or {}
                choice["text"] += message.get("content") or part.get("text") or ""
                choice["end"] = part.get("finish_reason") or choice["end"]
                choice["no"] |= bool(message.get("refusal")) or choice["end"] == "content_filter"
                logprobs = part.get("logprobs") or {}
                pairs = [(entry["token"], entry["logprob"]) for entry in logprobs.get("content") or ()]
                pairs += zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=False)
                choice["tokens"] += [(str(token), float("nan") if p is None else float(p)) for token, p in pairs]
    except json.JSONDecodeError:
        if text.lstrip()[:1] == "<":
            raise ValueError("a web page, not with JSON: is the address right? It often ends in /v1") from None
        raise BrokenError("the answer broke off, or is not valid JSON") from None
    except (AttributeError, KeyError, TypeError, ValueError):  # parts of other types than they should be
        choices.clear()
    if not choices:
        raise ValueError(f"JSON that is no completion: {text.strip()[:80]!r}")
    if streamed and not all(choice["end"] for choice in choices.values()):
        raise BrokenError("the answer broke off in the middle of its stream")
    return tuple(Reply(c["text"], c["no"], tuple(c["tokens"])) for _, c in sorted(choices.items())), usage
