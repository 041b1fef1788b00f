"""The one error shape over HTTP: {"error": {"message", "field", "status"}}, one line, never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fabula.errors import UserError

logger = logging.getLogger(__name__)

LONGEST = 300  # characters of a message, at most: what a client sent is not repeated at length
HTTP_MESSAGES = {
    400: "the body could not be read: send JSON in UTF-8",
    404: "there is nothing at this address",
    405: "this address does not take that method",
}


class Answer(BaseModel):
    """The body of an answer, for the OpenAPI document."""

    model_config = ConfigDict(extra="forbid")


class Fault(Answer):
    """What went wrong."""

    message: str = Field(description="One line: what is wrong and what to do.", examples=["sentence 2 is empty"])
    field: str | None = Field(description="The part of the request at fault, where there is one.")
    status: int = Field(description="The HTTP status, again.", ge=400, le=599)


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


def body(status: int, message: str, field: str | None = None) -> dict[str, Any]:
    """The error shape as plain values; lone surrogates, which no encoding holds, are replaced."""

    def encodable(text: str) -> str:
        return text.encode("utf-8", "replace").decode("utf-8")

    line = " ".join(encodable(message).split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."
    return {"error": {"message": line, "field": field and encodable(field)[:LONGEST], "status": status}}


class ErrorResponse(JSONResponse):
    """A refusal in the error shape. `app.state.error_shapes` has other shapes by the beginning of the path."""

    def __init__(self, content: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, content["error"]["status"], headers)
        self.content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for prefix, convert in getattr(scope["app"].state, "error_shapes", {}).items():
            if scope["path"].startswith(prefix):
                self.status_code, content = convert(self.content)
                self.body = self.render(content)
                self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def answer(
    status: int, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> ErrorResponse:
    """The error shape as a response."""
    return ErrorResponse(body(status, message, field), headers)


def of(error: Exception) -> dict[str, Any]:
    """The error shape of an exception; one that is no `UserError` is logged, and the client learns nothing of it."""
    if isinstance(error, UserError):
        return body(getattr(error, "status", 422), str(error), error.field)
    logger.error("a request failed", exc_info=error)
    return body(500, "a fault of Fabula's: see the terminal it runs in")


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses that a route may refuse with, for its OpenAPI document."""
    return {status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase} for status in statuses}


def install(app: FastAPI) -> None:
    """Send every error of this app in the one shape: ours, the framework's and unexpected ones. Before `protect`."""

    async def user_error(_: Request, error: Exception) -> JSONResponse:
        return ErrorResponse(of(error), getattr(error, "headers", None))

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return answer(422, *explain(error.errors()))

    async def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        message = HTTP_MESSAGES.get(error.status_code, str(error.detail))
        return answer(error.status_code, message, headers=error.headers)

    app.add_exception_handler(UserError, user_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_middleware(UnexpectedErrors)


class UnexpectedErrors:
    """Logs a fault of ours with its traceback, and answers in the one shape."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, note)
        except Exception as error:
            if scope["type"] != "http" or started:
                raise
            await ErrorResponse(of(error))(scope, receive, send)


def explain(errors: Sequence[Any]) -> tuple[str, str | None]:
    """The first of pydantic's complaints in one line, and the field it is about."""
    first = errors[0]
    kind, place = first["type"], list(first["loc"])
    field = path(place[1:] if place and place[0] in ("body", "query", "path", "header") else place) or None
    if kind == "json_invalid":
        return f"the body is not valid JSON: {first.get('ctx', {}).get('error', 'it ends too early')}", None
    if kind == "missing" and field is None:
        return "the body is missing: send a JSON object", None
    if kind in ("model_attributes_type", "dict_type") and field is None:
        return "the body has to be a JSON object with Content-Type: application/json", None
    message = str(first["msg"]).removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    message = {"missing": "is missing", "extra_forbidden": "is not known here"}.get(kind, message)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return (f"{field}: " if field else "") + message + more, field


def path(place: Sequence[str | int]) -> str:
    """`sentences[2].text`, as a person would write it; pydantic's `[key]` for a wrong key is left out."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place if step != "[key]")
    return steps.removeprefix(".")
