"""The one error shape over HTTP: {"error": {"message", "field", "status"}}, one line, never a traceback.

A body that is wrong in several fields also has `fields`, every one with its message: the others may be sent again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from fabula.errors import UserError

logger = logging.getLogger(__name__)

LONGEST = 300  # characters of a message, at most: what a client sent is not repeated at length
HTTP_MESSAGES = {
    400: "the body could not be read: send JSON in UTF-8",
    404: "there is nothing at this address",
    405: "this address does not take that method",
}
FIELDS = 100  # refused fields that an answer names, at most
UNKNOWN = "is not known here"
PLAIN = {
    "missing": "is missing", "missing_argument": "is missing", "extra_forbidden": UNKNOWN,
    "unexpected_keyword_argument": UNKNOWN, "too_long": "at most {max_length} {things}",
    "too_short": "at least {min_length} {things}", "string_too_long": "at most {max_length} characters",
    "string_too_short": "must not be empty", "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less", "literal_error": "must be {expected}",
    "string_pattern_mismatch": "is not written as it has to be", "finite_number": "must be a number",
    "json_invalid": "the body is not valid JSON: {error}", "model_attributes_type": "must be a JSON object",
}  # fmt: skip
"""What a person reads, by the kind of pydantic's complaint, in place of pydantic's words."""
TYPES = {"int": "a whole number", "float": "a number", "string": "text", "bool": "true or false", "list": "a list"}
BRANCH = re.compile(r"(str|int|float|list|dict|constrained-\w+|(list|dict|nullable|function-after|function)\[.*)$")
"""What pydantic puts into a place to say which type of several was tried."""


class Answer(BaseModel):
    """The body of an answer, for the OpenAPI document."""

    model_config = ConfigDict(extra="forbid")


class FieldFault(Answer):
    field: str | None
    message: str


class Fault(Answer):
    """What went wrong."""

    message: str = Field(description="One line: what is wrong and what to do.", examples=["sentence 2 is empty"])
    field: str | None = Field(description="The part of the request at fault, where there is one.")
    status: int = Field(description="The HTTP status, again.", ge=400, le=599)
    fields: list[FieldFault] | None = Field(None, description="Every part at fault, of a body that has the wrong form.")


class ErrorAnswer(Answer):
    """The body of every answer with a status of 400 or more."""

    error: Fault


class RefusedError(UserError):
    """A `UserError` with a status of its own (404, 409, 429 ...), and headers where the status wants some."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.status, self.headers = status, dict(headers or {})


def one_line(message: str) -> str:
    """A short line of it; lone surrogates, which no encoding holds, are replaced."""
    line = " ".join(message.encode("utf-8", "replace").decode("utf-8").split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


class ErrorResponse(JSONResponse):
    """An exception in the error shape. `app.state.error_shapes` has other shapes by the beginning of the path."""

    def __init__(self, error: Exception) -> None:
        self.content = of(error)
        headers = error.headers if isinstance(error, RefusedError | HTTPException) else None
        super().__init__(self.content, self.content["error"]["status"], headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for prefix, convert in getattr(scope["app"].state, "error_shapes", {}).items():
            if scope["path"].startswith(prefix):
                self.status_code, content = convert(self.content)
                self.body = self.render(content)
                self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def of(error: Exception) -> dict[str, Any]:
    """The error shape of an exception; one that nobody expects is logged, and the client learns nothing of it."""
    status, message, field, more = 500, "a fault of Fabula's: see the terminal it runs in", None, {}
    if isinstance(error, UserError):
        status, message, field = getattr(error, "status", 422), str(error), error.field
    elif isinstance(error, RequestValidationError):
        status, (message, field) = 422, explain(error.errors())
        faults = refused_fields(error.errors())
        more = {"fields": [{"field": field, "message": message} for field, message in faults.items()]}
    elif isinstance(error, HTTPException):
        status, message = error.status_code, HTTP_MESSAGES.get(error.status_code, str(error.detail))
    else:
        logger.error("a request failed", exc_info=error)
    return {"error": {"message": one_line(message), "field": field and one_line(field), "status": status, **more}}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses that a route may refuse with, for its OpenAPI document."""
    return {status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase} for status in statuses}


def install(app: FastAPI) -> None:
    """Send every error that is expected in the one shape, ours and the framework's; `guard.Guard` has the others."""

    async def refuse(_: Request, error: Exception) -> JSONResponse:
        return ErrorResponse(error)

    for kind in (UserError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)


def explain(errors: Sequence[Any]) -> tuple[str, str | None]:
    """The first of pydantic's complaints in one line, and the field it is about."""
    faults = refused_fields(errors)
    field, message = next(iter(faults.items()))
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return (f"{field}: " if field else "") + message + more, field


def refused_fields(errors: Sequence[Any]) -> dict[str | None, str]:
    """What is wrong with each field that pydantic complains about, `FIELDS` of them at most, in plain words."""
    faults: dict[str | None, str] = {}
    for error in errors[:FIELDS]:
        kind, place = error["type"], list(error["loc"])
        place = place[1:] if place and place[0] in ("body", "query", "path", "header") else place
        place = [step for step in place if PLAIN.get(kind) == UNKNOWN or not BRANCH.match(str(step))]
        field = None if kind == "json_invalid" else one_line(path(place)) or None
        faults.setdefault(field, plain(error, field))
    return faults


def plain(error: Any, field: str | None) -> str:
    """One complaint in plain words, never pydantic's."""
    kind = error["type"]
    context = {name: f"{ctx:g}" if isinstance(ctx, float) else ctx for name, ctx in error.get("ctx", {}).items()}
    if kind == "value_error":
        return one_line(str(context.get("error", "is not right")))
    if field is None and kind != "json_invalid":
        missing = "the body is missing: send a JSON object"
        return missing if kind == "missing" else "the body has to be a JSON object with Content-Type: application/json"
    name = (re.findall(r"\w+", field or "") or ["entries"])[-1]
    things = name if name.endswith("s") or name == "people" else "entries"
    what = TYPES.get(kind.partition("_")[0])
    text = PLAIN.get(kind) or (f"must be {what}" if what else "is not right")
    return one_line(text.format_map({"error": "it ends too early", "things": things, **context}))


def path(place: Sequence[str | int]) -> str:
    """`sentences[2].text`, as a person would write it; pydantic's `[key]` for a wrong key is left out."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place if step != "[key]")
    return steps.removeprefix(".")
