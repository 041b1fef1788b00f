"""Requests to one server: limits, retries, answers read from whatever comes, and a cache by request.

An answer is stored under the hash of its request, seed included, before anybody uses it. So the same seed gives the
same story, and a job that was killed asks nothing twice that had been answered. No file and no message holds the key.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fabula.errors import UnavailableError, UserError
from fabula.models.decoders.base import CACHE_VARIABLE
from fabula.served.body import BrokenError, NotACompletionError, Reply, read_body
from fabula.servers import Server

LARGEST = 4 << 20
"""Bytes of an answer, at most."""
REFUSED = (400, 422, 500, 501)
"""Statuses of a server that may not know an optional part of the request."""
TEMPORARY = (408, 409, 429, 500, 502, 503, 504)
"""Statuses after which the same request may succeed."""
LEVELS = (
    (),
    ("response_format", "logprobs", "top_logprobs", "stream_options", "n"),
    ("seed", "temperature", "max_tokens"),
)
"""Parts of a request that are left out, one group after the other, where a server refuses it."""


@dataclass
class Usage:
    """What was asked of a server by this process."""

    requests: int = 0
    cached: int = 0
    """Answers that were taken from the cache."""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    uncounted: int = 0
    """Requests whose tokens the server did not count."""
    lines: int = 0
    again: int = 0
    """Lines that were asked for again at least once."""

    def __str__(self) -> str:
        tokens = f"{self.prompt_tokens + self.answer_tokens:,} tokens"
        lacking = f" (the server counted none for {self.uncounted:,} of them)" if self.uncounted else ""
        return f"{self.requests:,} requests, {tokens}{lacking}, {self.cached:,} answers from the cache"


class Entry(NamedTuple):
    """An answer as the cache holds it."""

    replies: tuple[Reply, ...]
    usage: Mapping[str, int]


@lru_cache(maxsize=16)
def client_of(server: Server) -> Client:
    """The one client of a server in this process: its limit of requests at once holds for all who ask."""
    return Client(server)


class Client:
    """A server that can be asked."""

    def __init__(self, server: Server) -> None:
        self.server, self.usage = server, Usage()
        self.level = 0
        self._slots, self._lock = threading.BoundedSemaphore(server.at_once), threading.Lock()

    def ask(
        self, messages: Sequence[Mapping[str, str]], *, schema: Mapping[str, Any] | None, lines: int, seed: int,
        temperature: float, n: int = 1,
    ) -> tuple[Reply, ...]:  # fmt: skip
        """Answers to one prompt, `n` or fewer; of the completions API the prompt is all messages in one text."""
        server = self.server
        body: dict[str, Any] = {"model": server.model, "stream": True, "seed": seed, "temperature": temperature}
        body |= {"stream_options": {"include_usage": True}} | (
            {"max_tokens": server.tokens * lines} if server.tokens else {}
        )
        body |= {"n": n} if n > 1 else {}
        if server.api == "completions":
            body |= {"prompt": "\n\n".join(message["content"] for message in messages)}
            body |= {"logprobs": 0} if server.logprobs else {}
            return self._answered("completions", body)
        body |= {"messages": [dict(message) for message in messages]} | ({"logprobs": True} if server.logprobs else {})
        if schema is not None and server.json_schema:
            form = {"name": "lines", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return self._answered("chat", body)

    def log_p_of(self, prefix: str, text: str) -> list[tuple[str, float]]:
        """The tokens of a text after a prefix with their log-probabilities, by a server that gives them back."""
        body = {"model": self.server.model, "prompt": prefix + text, "echo": True, "logprobs": 1, "max_tokens": 1}
        why = f"{self.label} gives no log-probabilities of a given text; --model default does"
        try:
            (reply, *_) = self._answered("completions", {**body, "temperature": 0.0}, optional=False)
        except UnavailableError as error:
            raise UserError(f"{why} ({error})", field="model") from None
        place, tokens = -len(prefix), []
        for token, log_p in reply.tokens or ():
            if 0 <= place < len(text) or place < 0 < place + len(token):
                tokens.append((token, log_p))
            place += len(token)
        if not reply.text.startswith(prefix + text) or not tokens:
            raise UserError(why, field="model")
        return tokens

    @property
    def label(self) -> str:
        return f"served:{self.server.name}"

    def _answered(self, api: str, body: dict[str, Any], *, optional: bool = True) -> tuple[Reply, ...]:
        """From the cache, else from the server; what a server does not know is left out of the request."""
        while True:
            level = self.level if optional else 0
            left_out = {name for group in LEVELS[: level + 1] for name in group}
            sent = {name: value for name, value in body.items() if name not in left_out}
            path = _cache_path(self.server.address, api, sent)
            if (entry := _load(path)) is not None:
                self.count(cached=1)
                return entry.replies
            try:
                with self._slots:
                    entry = self._sent(api, sent)
            except RefusedRequestError:
                if not optional or level + 1 >= len(LEVELS):
                    raise
                self.level = max(self.level, level + 1)
                continue
            _store(path, entry)
            counts = {"prompt_tokens": "prompt_tokens", "answer_tokens": "completion_tokens"}
            used = {name: int(entry.usage.get(key) or 0) for name, key in counts.items()}
            self.count(requests=1, uncounted=int(not any(used.values())), **used)
            return entry.replies

    def count(self, **counts: int) -> None:
        with self._lock:
            for name, number in counts.items():
                setattr(self.usage, name, getattr(self.usage, name) + number)

    @cached_property
    def _openai(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise UserError("a model on a server needs openai: pip install 'fabula-stories[served]'") from error
        limits = openai.Timeout(self.server.seconds, connect=min(10.0, self.server.seconds))
        key = self.server.key or "none"
        return openai.OpenAI(base_url=self.server.address, api_key=key, max_retries=0, timeout=limits)

    def _sent(self, api: str, body: Mapping[str, Any]) -> Entry:
        """The answer of the server, asked again after faults that pass."""
        for attempt in range(self.server.retries + 1):
            try:
                return self._once(api, body)
            except (BrokenError, TemporaryError) as error:
                wait = error.wait if isinstance(error, TemporaryError) and error.wait is not None else 0.5 * 2**attempt
                if attempt == self.server.retries or wait > self.server.seconds:
                    later = f"; it asks to wait {wait:.0f} seconds" if wait > self.server.seconds else ""
                    kind = RefusedRequestError if getattr(error, "status", 0) in REFUSED else UnavailableError
                    raise kind(f"{self.label}: {error}{later}", field="model") from None
                time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, api: str, body: Mapping[str, Any]) -> Entry:
        client, key = self._openai, self.server.key
        import openai

        resource = client.completions if api == "completions" else client.chat.completions
        deadline, content, kind = time.monotonic() + self.server.seconds, bytearray(), ""
        try:
            with resource.with_streaming_response.create(**body) as response:
                kind = str(response.headers.get("content-type", ""))
                for part in response.iter_bytes():
                    content += part
                    if time.monotonic() > deadline or len(content) > LARGEST:
                        raise self._stalled()
        except openai.APIStatusError as error:
            raise self._refused(error, key) from None
        except (UserError, BrokenError):
            raise
        except Exception as error:  # of the client, or of the HTTP library below it, whichever version that is
            if "Timeout" in type(error).__name__:
                raise self._stalled() from None
            what = "the answer broke off" if content else f"no connection to {self.server.address}"
            raise BrokenError(f"{what} ({type(error).__name__})") from None
        text = bytes(content).decode("utf-8", "replace")
        text = text.replace(key, "[key]") if key else text
        try:
            return Entry(*read_body(text, kind))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # parts of other types than they should be
            fault = error if isinstance(error, NotACompletionError) else f"no completion: {text.strip()[:80]!r}"
            raise UnavailableError(f"{self.label} answered with {fault}", field="model") from None

    def _stalled(self) -> UnavailableError:
        return UnavailableError(f"{self.label} did not answer within {self.server.seconds:g} seconds", field="model")

    def _refused(self, error: Any, key: str) -> Exception:
        """What a status of 400 or more means."""
        status, said = error.status_code, " ".join(str(_message(error)).split())
        said = (said.replace(key, "[key]") if key else said)[:160]
        if status in (401, 403):
            fault = f"{self.label} refuses the key in {self.server.variable} ({status})"
            return UnavailableError(fault if key else f"{self.label} wants a key in {self.server.variable} ({status})")
        if status in TEMPORARY:
            return TemporaryError(f"{status} {said}", status, _retry_after(error.response.headers))
        kind = RefusedRequestError if status in REFUSED else UnavailableError
        return kind(f"{self.label} refuses the request: {status} {said}", field="model")


class RefusedRequestError(UnavailableError):
    """The server does not take the request in this form."""


class TemporaryError(Exception):
    """A status that may pass; the seconds that the server asks to wait, if it does."""

    def __init__(self, message: str, status: int, wait: float | None) -> None:
        super().__init__(message)
        self.status, self.wait = status, wait


def _message(error: Any) -> Any:
    body = error.body if isinstance(error.body, Mapping) else {}
    inner = body.get("error", body)
    return inner.get("message", inner) if isinstance(inner, Mapping) and inner else error.message


def _retry_after(headers: Mapping[str, str]) -> float | None:
    with suppress(ValueError, TypeError):
        return max(0.0, float(headers.get("retry-after") or ""))
    return None


def cache_folder() -> Path:
    """Where answers are kept: FABULA_CACHE/served, else ~/.cache/fabula/served."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fabula") / "served"


def _cache_path(address: str, api: str, body: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(
        json.dumps([address, api, body], sort_keys=True).encode("utf-8", "surrogatepass")
    ).hexdigest()
    return cache_folder() / digest[:2] / f"{digest[2:]}.json"


def _load(path: Path) -> Entry | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        replies = tuple(Reply(*reply) for reply in content["replies"])
        return Entry(replies, content["usage"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: asked again
        return None


def _store(path: Path, entry: Entry) -> None:
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"replies": entry.replies, "usage": dict(entry.usage)}), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write the cache of answers {path.parent}: {error.strerror}") from error
