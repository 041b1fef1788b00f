"""Models on servers: what is asked, what is done with every kind of answer, and who may say where the server is."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from mcp import Client as McpClient

import fabula
from fabula import listening
from fabula.apps.fleet.shards import read_results
from fabula.apps.serve.mcp import create_mcp_server
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.cli import main
from fabula.errors import UnavailableError, UserError
from fabula.served.model import DefaultJudge
from fabula.served.words import read_lines, with_opening
from fabula.servers import find_server
from fake_server import FakeServer, Handler, Script, fake_server, obedient
from own_loop import run_alone

STORY = ["Tom was sad.", None, None, "Tom smiled."]
KEY = "marked-key-7f3a9"
Serve = Callable[..., FakeServer]
ONE: dict[str, Any] = {"samples": 1, "candidates": 1}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """Starts a server and names it `served:fake`; no critic, an empty cache, a key that can be searched for."""
    monkeypatch.setattr(DefaultJudge, "critic", None)
    monkeypatch.setenv("FABULA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FABULA_SERVERS", str(tmp_path / "servers.toml"))
    with ExitStack() as stack:

        def start(script: Script = Handler.obey, **settings: object) -> FakeServer:
            server = stack.enter_context(fake_server(script))
            values = {"address": server.address, "model": "m", "retries": 1, "seconds": 5, "key": KEY, **settings}
            for name, value in values.items():
                monkeypatch.setenv(f"FABULA_SERVED_FAKE_{name.upper()}", str(value))
            return server

        yield start


def prompts(server: FakeServer) -> list[str]:
    return [request["messages"][-1]["content"] for request in server.seen]


def test_a_fill_keeps_lines_openings_and_the_arc_and_is_asked_for_once(serve: Serve) -> None:
    server = serve()
    model: Any = fabula.load("served:fake")
    call: dict[str, Any] = {"starts": {3: "His friend"}, "people": [{"name": "Ann", "pronoun": "she"}]}
    call |= {"arc": "? - + ?", "notes": ["It is winter."]}
    filling = model.fill(STORY, seed=3, **call)
    assert len({candidate.text for candidate in filling.candidates}) == 3
    for candidate in filling.candidates:
        lines = [sentence.text for sentence in candidate.sentences]
        assert (lines[0], lines[3], lines[2][:11]) == (STORY[0], STORY[3], "His friend ")
        assert candidate.arc == ("negative", "negative", "positive", "positive")
    assert all("Ann (she)" in prompt and "It is winter." in prompt for prompt in prompts(server))
    assert KEY in server.seen[0]["key"]
    requests = len(server.seen)
    assert model.fill(STORY, seed=3, **call).to_json() == filling.to_json()
    assert len(server.seen) == requests == model.client.usage["requests"]
    assert model.fill(STORY, seed=4, **call).to_json() != filling.to_json()


@pytest.mark.parametrize(
    "said", ['{"words": ["walked", "Ran", "went", "walked"]}', "1. walked\n2. ran\n3. went", "walked, went"]
)
def test_another_word_is_asked_for_once(serve: Serve, said: str) -> None:
    server = serve(lambda handler, _: handler.answer(said))
    place = {"line": 3, "before": "The dog", "word": "ran", "after": "home."}
    assert fabula.load("served:fake").words(STORY, **place).words == ("walked", "went")  # type: ignore[arg-type]
    (prompt,) = prompts(server)
    assert "Tom was sad.\nThe dog [ran] home." in prompt


def test_a_voice_is_asked_for_in_plain_words_and_refused_by_models_that_cannot_follow_it(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    model = fabula.load("served:fake")
    plain = model.fill(STORY, **ONE)
    assert plain.to_json() == model.fill(STORY, voice={"tense": None}, **ONE).to_json()
    told = model.fill(STORY, voice={"tense": "present", "person": "first", "length": "short"}, **ONE)
    assert told.to_json() == model.fill(STORY, voice="short,first,present", **ONE).to_json()
    without, voiced = prompts(server)
    assert "How it is told" not in without
    assert "The present tense. The first person" in voiced
    assert "at most 8 words" in voiced
    rows: list[dict[str, Any]] = [{"id": 1, "sentences": STORY, "voice": voice} for voice in (None, "past", "present")]
    assert all(row.error is None for row in model.fill_many(rows, **ONE))
    assert [("past tense" in p, "present tense" in p) for p in prompts(server)[2:]] == [
        (False, False), (True, False), (False, True)
    ]  # fmt: skip
    for wrong in ("purple", "past,present", {"tense": "future"}, {"mood": "past"}):
        with pytest.raises(UserError, match="a voice has tense"):
            model.fill(STORY, voice=wrong)
    assert main(["fill", "Tom was sad.", "_", "--model", "small", "--voice", "past"]) == 2
    assert capsys.readouterr().err.endswith("cannot follow a voice; a model on a server can (served:NAME)\n")


def test_long_stories_go_by_windows_and_free_moods_are_drawn(serve: Serve) -> None:
    server = serve()
    model = fabula.load("served:fake")
    story = ["Tom was sad.", None, "He left.", None, *[None] * 26, "Tom smiled.", None]
    (candidate,) = model.fill(story, **ONE).candidates
    assert [s.text for s in candidate.sentences if not s.written] == [line for line in story if line]
    assert len(server.seen) == 4  # 29 lines by at most 8
    assert "written later" in prompts(server)[0]
    assert candidate.sentences[12].text in prompts(server)[-1]
    assert len(model.write(12, samples=1).candidates[0].sentences) == 12
    arc = {"sentiment": "? - ? ?", "emotion": "? fear ? ?", "verb": "? go ? ?"}
    model.fill(STORY, arc=arc, **ONE)
    request = next(prompt for prompt in prompts(server) if "has 4 lines" in prompt)
    second, third = (line for line in request.splitlines() if line.startswith("Line "))
    assert all(words in second for words in ("negative in mood", "its emotion is fear", "one of these: go, come, walk"))
    assert ("preferably" in second, "preferably" in third) == (False, True)


def test_a_line_that_misses_is_asked_for_again_alone_and_then_costs(serve: Serve) -> None:
    answers = iter(["Tom was happy.", "Tom was glad.", "Tom was sad."] + ["Tom was happy."] * 9)
    server = serve(lambda handler, body: handler.answer(json.dumps({"2": next(answers)})))
    model: Any = fabula.load("served:fake")
    (candidate,) = model.fill(["Tom left.", None], arc="? -", **ONE).candidates
    assert (candidate.sentences[1].text, candidate.score) == ("Tom was sad.", 0.0)
    assert "'Tom was happy.' reads as positive" in prompts(server)[1]
    assert "'Tom was glad.' reads as positive" in prompts(server)[2]
    (missed,) = model.fill(["Tom left.", None], arc="? -", seed=1, **ONE).candidates
    assert missed.score == -4.0  # arc_weight
    assert (len(server.seen), model.client.usage["lines_again"]) == (6, 2)  # asked again twice at most


def test_log_probabilities_rank_where_they_are_given_and_are_never_made_up(serve: Serve) -> None:
    def likely(handler: Handler, body: dict[str, Any]) -> None:
        text = obedient(body)
        words = [{"token": text[:1], "logprob": -9.0}, {"token": text[1:], "logprob": -float(body["seed"] % 7)}]
        handler.answer(text, logprobs={"content": words})

    serve(likely)
    filling = fabula.load("served:fake").fill(["Tom left.", None], samples=6, candidates=6, arc="? -")
    assert "no log-probabilities" not in " ".join(filling.notes)
    ranked = [candidate.sentences[1].log_p for candidate in filling.candidates]
    assert ranked == sorted(ranked, reverse=True)
    serve()
    silent = fabula.load("served:fake").fill(["Tom left.", None], arc="? -")
    assert silent.to_dict(4)["candidates"][0]["sentences"][1]["log_p"] is None
    assert "no log-probabilities" in silent.notes[0]
    assert main(["score", "Tom left.", "He ran.", "--model", "served:fake"]) == 2


@pytest.mark.parametrize("honoured", [True, False])
def test_n_is_used_where_the_server_honours_it(serve: Serve, honoured: bool) -> None:
    def several(handler: Handler, body: dict[str, Any]) -> None:
        handler.answer(*(obedient(body, turn) for turn in range(body.get("n", 1) if honoured else 1)))

    server = serve(several)
    filling = fabula.load("served:fake").fill(["Tom left.", None], arc="? -", samples=4, candidates=4)
    assert (len(filling.candidates), len(server.seen)) == (4, 1 if honoured else 4)


def test_what_a_server_does_not_know_is_left_out_and_plain_completions_work(serve: Serve) -> None:
    def picky(handler: Handler, body: dict[str, Any]) -> None:
        fault = '{"error": {"message": "unknown field"}}'
        handler.send(fault, status=400) if "response_format" in body else handler.obey(body)

    server = serve(picky)
    assert fabula.load("served:fake").fill(STORY, **ONE).candidates
    assert [set(request) & {"response_format", "logprobs", "seed"} for request in server.seen[1:]] == [{"seed"}]
    server = serve(api="completions")
    filling = fabula.load("served:fake").fill(STORY, starts={2: "The dog"}, arc="? - + ?", **ONE)
    assert server.seen[-1]["path"] == "/v1/completions"
    assert filling.candidates[0].sentences[1].text.startswith("The dog was sad and lost thing")


def test_answers_are_repaired_but_not_made_up(serve: Serve) -> None:
    for text in (
        '{"2": "He ran.", "3": "He fell."}', 'Sure!\n```json\n{"line 2": "He ran", "3": "**He fell.**"}\n```',
        '{"lines": ["He ran.", "He fell."]}', '{"1": "Tom left.", "2": "He ran.", "3": "He fell.", "4": "He',
        "2. He ran.\n3) \"He fell.\" (positive)", "Line 2: He ran.\nLine 3: He fell", "He ran. He fell.",
        "Here they are:\nTom left.\nHe ran.\n- He fell.",
    ):  # fmt: skip
        assert read_lines(text, [2, 3], ["Tom left.", None, None]) == {2: "He ran.", 3: "He fell."}, text
    ten = "\n".join(f"He ran to {letter}." for letter in "abcdefghij")
    for text in (ten, "", "{", "I cannot help with that.", '{"2": 7, "3": null}', "He ran."):
        assert read_lines(text, [2, 3], ["Tom left.", None, None]) == {}
    assert read_lines("I'm sorry, but I cannot write that.", [2], []) == {}
    assert with_opening("his friendly dog ran.", "His friend", force=False) is None
    assert with_opening("his friend ran.", "His friend", force=False) == "His friend ran."
    assert with_opening("The dog ran.", "Then", force=True) == "Then the dog ran."
    server = serve(lambda handler, body: handler.answer(ten))
    (candidate,) = fabula.load("served:fake").fill(STORY, **ONE).candidates
    assert (len(candidate.sentences), len(server.seen)) == (4, 3)  # each line alone


def half(handler: Handler, body: dict[str, Any]) -> None:
    handler.send('data: {"choices": [{"index": 0, "delta": {"content": "{\\"2"}}]}\n\n', "text/event-stream")


def dies(handler: Handler, body: dict[str, Any]) -> None:
    handler.connection.close()


FAULTS: dict[str, tuple[Script, str]] = {
    "html": (lambda h, _: h.send("<html>Sign in</html>", "text/html"), "a web page"),
    "half a stream": (half, "broke off in the middle"),
    "dies": (dies, "no connection"),
    "not JSON": (lambda h, _: h.send('{"choices": [{'), "not valid JSON"),
    "other JSON": (lambda h, _: h.send('{"ok": true}'), "no completion"),
    "odd types": (lambda h, _: h.send('{"choices": [7]}'), "no completion"),
    "reported": (lambda h, _: h.send('{"error": {"message": "out of memory"}}'), "out of memory"),
    "refusal": (lambda h, _: h.answer("I am sorry, I cannot write that."), "gave no usable line 2"),
    "filtered": (lambda h, _: h.answer("", finish_reason="content_filter"), "declined to write line 2"),
    "wrong key": (lambda h, _: h.send(f'{{"error": "bad key {KEY}"}}', status=401), "FABULA_SERVED_FAKE_KEY"),
    "no model": (lambda h, _: h.send('{"error": "no such model"}', status=404), "no such model"),
    "too busy": (lambda h, _: h.send("{}", status=429, Retry_After="0.01"), "429"),
    "busy for long": (lambda h, _: h.send("{}", status=429, Retry_After="3600"), "429"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_line(fault: str, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    script, said = FAULTS[fault]
    serve(script)
    assert main(["fill", "Tom left.", "_", "_", "He ran.", "--model", "served:fake", "--samples", "1"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("fabula fill: served:fake")
    assert said in error
    assert KEY not in error


def test_a_server_that_stalls_is_given_up_and_a_busy_one_is_asked_again(serve: Serve) -> None:
    released, turns = threading.Event(), iter([429, 503, 200])
    serve(lambda handler, body: (released.wait(60), None)[1], seconds=0.2)
    try:
        with pytest.raises(UnavailableError, match=r"no answer within 0\.2 seconds"):
            fabula.load("served:fake").fill(STORY)
    finally:
        released.set()

    def busy(handler: Handler, body: dict[str, Any]) -> None:
        status = next(turns)
        handler.obey(body) if status == 200 else handler.send("{}", status=status, Retry_After="0.01")

    server = serve(busy, retries=2)
    assert fabula.load("served:fake").fill(STORY, **ONE).candidates
    assert len(server.seen) == 3


def test_a_job_whose_server_dies_stops_and_goes_on_without_asking_twice(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = [5]
    server = serve(lambda h, body: h.obey(body) if h.server.answered < lives[0] else dies(h, body))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": n, "sentences": ["Tom left.", None]}) + "\n" for n in range(8)))
    words = ["fill-many", str(rows), "--out", str(tmp_path / "out"), "--model", "served:fake", "--samples", "1"]
    assert main(words) == 2
    assert "about 8 requests" in capsys.readouterr().err
    assert server.answered == 0
    assert main([*words, "--yes"]) == 2
    assert "no connection" in capsys.readouterr().err
    lives[0] = 100
    assert main([*words, "--yes"]) == 0
    assert "8 requests" in capsys.readouterr().err
    results = list(read_results(tmp_path / "out"))
    assert (server.answered, sorted(result["id"] for result in results)) == (8, list(range(8)))
    assert not any("error" in result for result in results)


def test_the_doors_take_a_named_server_and_nobody_else_says_where_it_is(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    body = {"sentences": STORY, "seed": 3, **ONE}
    app = create_app(StudioSettings(model="served:fake", db=tmp_path / "studio.db"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert not server.seen
        filled = client.post("/api/fill", json=body)
        assert filled.json() == fabula.load("served:fake").fill(STORY, seed=3, **ONE).to_dict(4)
        (served,) = (m for m in client.get("/api/models").json()["models"] if m["name"] == "served:fake")
        assert served["voice"] == ["tense", "person", "length"]
        listed = client.get("/api/models").text
        assert [text in listed for text in ('"served:fake"', KEY, server.address)] == [True, False, False]
        for wrong in ({"model": "served:other"}, {"address": "http://evil"}, {"model": "served:http://evil/v1"}):
            assert client.post("/api/fill", json={**body, **wrong}).status_code == 422
        server.script = dies
        assert client.post("/api/fill", json={**body, "seed": 9}).json()["error"]["status"] == 503

    async def work() -> Any:
        async with McpClient(create_mcp_server("served:fake")) as tools:
            return (await tools.call_tool("fill", {"sentences": STORY, "candidates": 1})).structured_content

    server.script = Handler.obey
    assert run_alone(work())["model"] == "served:fake"


def test_no_file_and_no_output_holds_the_key(
    serve: Serve, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server repeats the key in its answers, and the client logs all it can."""
    serve(lambda h, body: h.answer(obedient(body).replace("thing", f"thing {KEY}")))
    monkeypatch.setenv("OPENAI_LOG", "debug")
    rows, served = tmp_path / "rows.jsonl", ["--model", "served:fake"]
    rows.write_text('{"id": 1, "sentences": ["Tom left.", null]}\n')
    assert main(["fill", "Tom left.", "_", *served, "--json"]) == 0
    assert main(["fill-many", str(rows), "--out", str(tmp_path / "out"), "--yes", *served]) == 0
    assert main(["models", "add-server", "kept", "--address", "http://127.0.0.1:1/v1", "--model", "m"]) == 0
    app = create_app(StudioSettings(model="served:fake", db=tmp_path / "studio.db"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.post("/api/fill", json={"sentences": ["Tom left.", None]})
        text = answer.json()["candidates"][0]["sentences"][1]["text"]
        pages = (
            answer.text + client.post("/api/stories", json={"title": text[:40]}).text + client.get("/api/models").text
        )
    printed, files = capfd.readouterr(), [path for path in tmp_path.rglob("*") if path.is_file()]
    assert KEY not in pages + printed.out + printed.err
    assert len(files) > 6
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_servers_are_named_checked_and_listed(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["models", "add-server", "mine", "--address", serve().address, "--model", "m", "--key-variable", "MY_KEY"]
    assert main([*words, "--again", "1"]) == 0
    assert (find_server("mine").key_variable, find_server("mine").again) == ("MY_KEY", 1)
    assert main(["models", "check", "mine"]) == 0
    assert "json schema no, logprobs no, n no" in capsys.readouterr().out
    assert not find_server("mine").n
    assert main(["models"]) == 0
    assert "served:mine  served   m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('address = "ftp://h"', "http"), ('address = "http://u:p@h"', "password"), ('key = "k"', "'key'"),
        ('address = ""', "add-server x"), ("window = 0", "window"), ("api = 3", "api"), ('retries = "3"', "x is wrong"),
        ("[", "cannot be read"),
    ],
)  # fmt: skip
def test_a_wrong_server_is_one_line(fields: str, said: str, serve: Serve, tmp_path: Path) -> None:
    usual = [f'{name} = "http://h"' for name in ("address", "model") if name not in fields]
    (tmp_path / "servers.toml").write_text("\n".join(["[x]", *usual, fields]))
    with pytest.raises(UserError, match=said):
        find_server("x")


def test_words_from_a_server_are_heard_as_they_come(serve: Serve) -> None:
    """Half of the answer is sent; the other half only when that half was heard."""
    half_heard, heard = threading.Event(), []

    def in_halves(handler: Handler, body: dict[str, Any]) -> None:
        text = obedient(body)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for part, end in ((text[: len(text) // 2], None), (text[len(text) // 2 :], "stop")):
            choice = {"index": 0, "delta": {"content": part}, "finish_reason": end}
            handler.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            handler.wfile.flush()
            assert half_heard.wait(10)
        handler.wfile.write(b"data: [DONE]\n\n")

    def hear(lines: dict[int, str]) -> None:
        heard.append(lines)
        half_heard.set()

    serve(in_halves, retries=0, seconds=20)
    with listening.listening(hear):
        (filling,) = fabula.load("served:fake").fill_iter(STORY, **ONE)
    final = {i: s.text for i, s in enumerate(filling.candidates[0].sentences, start=1) if s.written}
    assert heard
    assert all(final[line].startswith(text) for lines in heard for line, text in lines.items())
    assert heard[0] != final
