"""The MCP server, asked by the official package's own client: in this process, and over standard input and output."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import fabula
from doors import Refused
from fabula.apps.serve.mcp import create_mcp_server
from own_loop import run_alone

STORY = ["Tom was sad.", None, "Tom was glad."]


def test_the_five_tools_with_their_schemas_and_a_fill(random_models: Path) -> None:
    whole = ["Tom was sad.", "He made it.", "Tom was glad."]

    async def work() -> tuple[dict[str, Any], list[Any], list[Any]]:
        async with Client(create_mcp_server(str(random_models / "default"))) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            answers = [await client.call_tool("fill", {"sentences": STORY, "arc": [None, "positive", None], "seed": 7})]
            answers.append(await client.call_tool("write", {"sentences": 3, "seed": 7}))
            answers += [await client.call_tool(name, {"sentences": whole}) for name in ("tag", "score", "explain")]
            wrong = [await client.call_tool("fill", {"sentences": value}) for value in (whole, "Tom was sad.")]
            return tools, answers, wrong

    tools, answers, wrong = run_alone(work())
    assert set(tools) == {"fill", "write", "tag", "score", "explain"}
    schema = tools["fill"].input_schema
    assert (schema["required"], schema["properties"]["sentences"]["minItems"]) == (["sentences"], 2)
    assert not any(answer.is_error for answer in answers)
    filled, written, tagged, scored, explained = (answer.structured_content for answer in answers)
    model = fabula.load(random_models / "default")
    assert filled == model.fill(STORY, arc=[None, "positive", None], seed=7).to_dict(4)
    lengths = len(written["candidates"][0]["sentences"]), len(tagged["tags"]), len(explained["sentences"])
    assert lengths == (3, 3, 3)
    assert scored["kind"] == "bound"
    assert all(answer.is_error for answer in wrong)
    assert "no sentence is missing" in wrong[0].content[0].text


@pytest.mark.system
def test_the_command_speaks_over_standard_input_and_output(random_models: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(fabula.__file__).parents[1])}
    words = ["-m", "fabula", "mcp", "--model", str(random_models / "default")]

    async def work() -> int:
        server = StdioServerParameters(command=sys.executable, args=words, env=environment)
        async with Client(server, read_timeout_seconds=120) as client:
            return len((await client.list_tools()).tools)

    assert run_alone(work()) == 5


def test_what_is_missing_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    assert "no model and no folder is called 'nowhere'" in refused("mcp", "--model", "nowhere")
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert "pip install 'fabula-stories[mcp]'" in refused("mcp")
