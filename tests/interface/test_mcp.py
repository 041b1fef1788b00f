"""The MCP server, asked by the official package's own client over standard input and output."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import Client, StdioServerParameters

import fabula
from fabula.cli import main
from own_loop import run_alone

T = TypeVar("T")
STORY = ["Tom was sad.", None, "Tom was glad."]


def ask(random_models: Path, work: Callable[[Client], Awaitable[T]]) -> T:
    """What `work` makes of a client that has started `fabula mcp`."""
    here = str(Path(fabula.__file__).parents[1])
    environment = {**os.environ, "FABULA_MODELS": str(random_models), "PYTHONPATH": here}
    words = ["-m", "fabula", "mcp", "--model", str(random_models / "default")]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def asked() -> T:
        async with Client(server, read_timeout_seconds=120) as client:
            return await work(client)

    answer: T = run_alone(asked())
    return answer


def test_the_five_tools_with_their_schemas_and_a_fill(random_models: Path) -> None:
    async def work(client: Client) -> dict[str, Any]:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        filled = await client.call_tool("fill", {"sentences": STORY, "arc": [None, "positive", None], "seed": 7})
        written = await client.call_tool("write", {"sentences": 3, "seed": 7})
        whole = ["Tom was sad.", "He made it.", "Tom was glad."]
        others = [await client.call_tool(name, {"sentences": whole}) for name in ("tag", "score", "explain")]
        wrong = await client.call_tool("fill", {"sentences": ["Tom was sad.", "Tom was glad."]})
        invalid = await client.call_tool("fill", {"sentences": "Tom was sad."})
        return {"tools": tools, "answers": [filled, written, *others], "wrong": [wrong, invalid]}

    found = ask(random_models, work)
    assert set(found["tools"]) == {"fill", "write", "tag", "score", "explain"}
    schema = found["tools"]["fill"].input_schema
    assert schema["required"] == ["sentences"]
    assert schema["properties"]["sentences"]["minItems"] == 2
    assert not any(answer.is_error for answer in found["answers"])
    filled, written, tagged, scored, explained = (answer.structured_content for answer in found["answers"])
    narrator = fabula.load(random_models / "default")
    assert filled == narrator.fill(STORY, arc=[None, "positive", None], seed=7).to_json()
    assert len(written["candidates"][0]["sentences"]) == 3
    assert len(tagged["tags"]) == 3
    assert scored["kind"] == "bound"
    assert len(explained["sentences"]) == 3
    wrong, invalid = found["wrong"]
    assert wrong.is_error
    assert "no sentence is missing" in wrong.content[0].text
    assert invalid.is_error


def test_what_is_missing_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--model", "nowhere"]) == 2
    assert "no model and no folder is called 'nowhere'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 2
    assert "pip install 'fabula-stories[mcp]'" in capsys.readouterr().err
