"""An MCP server: the model's five uses as tools for assistants that speak the Model Context Protocol.

Each tool is a method of `StoryModel` and answers what the command prints with --json. Schemas come from signatures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from fabula import __version__
from fabula.api import StoryModel, load
from fabula.apps.serve.bodies import Arc, Blanks, Seed, Story, Text
from fabula.apps.serve.settings import CANDIDATES, SENTENCES
from fabula.errors import UserError

INSTRUCTIONS = (
    "Fabula writes and fills in short stories of everyday life, sentence by sentence, along an emotional arc. Give the "
    "sentences you have and null where one is missing; an arc has a label or null for every sentence of the story."
)

Candidates = Annotated[int, Field(ge=1, le=CANDIDATES, description="How many stories, the best first.")]


def create_mcp_server(model: str = "default", device: str = "cpu", threads: int | None = None) -> MCPServer[Any]:
    """The server of one model, which is loaded when a tool is first called; one call at a time."""
    lock = threading.Lock()
    loaded = cache(lambda: load(model, device, threads))

    def answer(call: Callable[[StoryModel], Any]) -> dict[str, Any]:
        with lock:
            try:
                content: dict[str, Any] = call(loaded()).to_dict(4)
            except UserError as error:
                raise ToolError(str(error)) from error
        return content

    server: MCPServer[Any] = MCPServer("fabula", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    @server.tool()
    def fill(sentences: Blanks, arc: Arc = None, candidates: Candidates = 3, seed: Seed = 0) -> dict[str, Any]:
        """Write the missing sentences of a story so that they lead to the given ones. Takes some seconds."""
        return answer(lambda model: model.fill(sentences, arc=arc, candidates=candidates, seed=seed))

    @server.tool()
    def write(
        sentences: Annotated[int | None, Field(ge=SENTENCES[0], le=SENTENCES[1])] = None,
        arc: Arc = None,
        candidates: Candidates = 1,
        seed: Seed = 0,
    ) -> dict[str, Any]:
        """Write a story from nothing but its length (the arc's, else 5) and its arc."""
        return answer(lambda model: model.write(sentences, arc=arc, candidates=candidates, seed=seed))

    @server.tool()
    def tag(sentences: Annotated[list[Text], Field(min_length=1, max_length=SENTENCES[1])]) -> dict[str, Any]:
        """Say the mood of every sentence."""
        return answer(lambda model: model.tag(sentences))

    @server.tool()
    def score(sentences: Story, seed: Seed = 0) -> dict[str, Any]:
        """Say how probable a story is, in nats (larger is more probable)."""
        return answer(lambda model: model.score(sentences, seed=seed))

    @server.tool()
    def explain(sentences: Story, arc: Arc = None, seed: Seed = 0) -> dict[str, Any]:
        """Say how each sentence fits what comes before, what follows and the arc, with the log-probability of words."""
        return answer(lambda model: model.explain(sentences, arc=arc, seed=seed))

    return server
