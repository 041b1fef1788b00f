"""Every route of the studio: what it answers, and how it refuses. By a real server over untrained models."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

import fabula
from doors import Serving
from fabula.apps.studio.app import StudioSettings, create_app

STORY = ["Mia's car would not start.", None, "Mia made it to work on time."]
TOLD = ["Tom was sad.", "Tom was glad."]


@pytest.fixture(scope="module")
def client(serving: Serving, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = StudioSettings(db=tmp_path_factory.mktemp("studio") / "deep" / "studio.db", max_body=200_000)
    with serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def lines(*texts: str) -> dict[str, Any]:
    return {"lines": [{"text": text} for text in texts]}


def refused(answer: httpx.Response, status: int, field: str | None, says: str = "") -> None:
    told = answer.json()
    assert (answer.status_code, set(told)) == (status, {"error"}), told
    assert set(told["error"]) - {"fields"} == {"message", "field", "status"}
    assert (told["error"]["status"], told["error"]["field"]) == (status, field), told
    assert says in told["error"]["message"], told
    assert "\n" not in told["error"]["message"]
    assert len(told["error"]["message"]) <= 300


def test_health_and_models(client: httpx.Client) -> None:
    health = client.get("/api/health").json()
    assert (health["status"], health["version"], health["model"]) == ("ok", fabula.__version__, "default")
    assert set(health["jobs"]) == {"running", "waiting", "queue"}
    models = {model["name"]: model for model in client.get("/api/models").json()["models"]}
    assert set(models) == {"default", "lds", "lm", "s2s"}
    assert models["default"]["labels"] == ["negative", "neutral", "positive"]
    assert models["default"]["voice"] == []
    assert "folder" not in models["default"]


def test_the_document_names_every_route_and_its_errors(client: httpx.Client) -> None:
    """A summary each, an answer of a known shape, and the one error shape for everything above 400."""
    document = client.get("/api/openapi.json").json()
    paths = document["paths"]
    told = {path for path in paths if path.startswith("/api/")}
    assert told == {
        *[f"/api/{name}" for name in ("health", "models", "fill", "fill/stream", "write", "tag", "score")],
        *["/api/posterior", "/api/explain", "/api/mentions", "/api/words"],
        *["/api/stories", "/api/stories/{story}", "/api/stories/{story}/branches"],
        *[f"/api/stories/{{story}}/{name}" for name in ("branches/{branch}", "copy", "restore")],
        *[f"/api/stories/{{story}}/branches/{{branch}}/versions{end}" for end in ("", "/{version}")],
    }
    for path in told:
        for method, route in paths[path].items():
            assert route["summary"], (method, path)
            done = [route["responses"][code] for code in route["responses"] if code < "300"]
            assert done, (method, path)
            assert method == "delete" or all("schema" in next(iter(one["content"].values())) for one in done)
            for code, answer in route["responses"].items():
                if code >= "400":
                    shape = answer["content"]["application/json"]["schema"]
                    assert shape == {"$ref": "#/components/schemas/ErrorAnswer"}, (method, path, code)


def test_writing_routes_answer(client: httpx.Client) -> None:
    filled = client.post("/api/fill", json={"sentences": STORY, "candidates": 2, "samples": 4}).json()
    assert [s["text"] for s in filled["candidates"][0]["sentences"]][::2] == STORY[::2]
    assert (len(filled["candidates"]), filled["samples"], filled["sampler"]) == (2, 4, "smc")
    written = client.post("/api/write", json={"sentences": 3, "arc": ["negative", None, "positive"]}).json()
    assert [s["asked"] for s in written["candidates"][0]["sentences"]][::2] == ["negative", "positive"]
    assert len(client.post("/api/tag", json={"sentences": TOLD}).json()["tags"]) == 2
    named = client.post("/api/mentions", json={"sentences": ["She went to Oslo with Zelda."]}).json()
    assert named == {"people": [{"name": "Zelda", "pronoun": "she", "about": ""}], "places": ["Oslo"]}
    place = {"sentences": TOLD, "line": 2, "before": "Tom was", "word": "glad", "after": "."}
    for model in ("default", "lm"):
        words = client.post("/api/words", json={**place, "model": model}).json()["words"]
        assert 1 <= len(words) == len(set(words)) <= 8
        assert "glad" not in words
    scored = client.post("/api/score", json={"sentences": TOLD, "model": "lm"}).json()
    assert scored["kind"] == "exact"
    moods = client.post("/api/posterior", json={"sentences": STORY, "arc": ["negative", None, None]}).json()
    assert moods["tags"][0] == {"negative": 1.0, "neutral": 0.0, "positive": 0.0}
    assert set(moods) == {"tags", "samples", "seed", "model"}
    why = client.post("/api/explain", json={"sentences": TOLD, "arc": [None, "positive"]}).json()["sentences"]
    assert [word["text"] for word in why[0]["words"]] == ["Tom", "was", "sad", "."]
    assert why[0]["fits_arc"] is None
    assert why[1]["fits_arc"] < 0
    assert why[1]["fits_after"] is None


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("fill", {}, "sentences", "is missing"),
        ("fill", {"sentences": STORY, "colour": 1}, "colour", "not known"),
        ("fill", {"sentences": ["Tom was sad.", None, 3]}, "sentences[2]", "must be text"),
        ("fill", {"sentences": ["Tom was sad.", None, "  "]}, "sentences", "sentence 3 is empty"),
        ("fill", {"sentences": TOLD}, "sentences", "no sentence is missing"),
        ("fill", {"sentences": [None, None]}, "sentences", "every sentence is missing"),
        ("fill", {"sentences": [None]}, "sentences", "at least 2 sentences"),
        ("fill", {"sentences": ["Tom."] * 64 + [None]}, "sentences", "at most 64 sentences"),
        ("fill", {"sentences": [None, "word " * 61]}, "sentences[1]", "has 61 words; the most is 60"),
        ("fill", {"sentences": [None, "!" * 121]}, "sentences[1]", "has 121 words and marks"),
        ("fill", {"sentences": [None, "w" * 1001]}, "sentences[1]", "at most 1000 characters"),
        ("fill", {"sentences": STORY, "candidates": 11}, "candidates", "must be 10 or less"),
        ("fill", {"sentences": STORY, "candidates": 0}, "candidates", "must be 1 or more"),
        ("fill", {"sentences": STORY, "samples": 201}, "samples", "must be 200 or less"),
        ("fill", {"sentences": STORY, "samples": "5"}, "samples", "must be a whole number"),
        ("fill", {"sentences": STORY, "seed": -1}, "seed", "must be 0 or more"),
        ("fill", {"sentences": STORY, "seed": 2**53}, "seed", "or less"),
        ("fill", {"sentences": STORY, "seed": True}, "seed", "must be a whole number"),
        ("fill", {"sentences": STORY, "temperature": 0}, "temperature", "or more"),
        ("fill", {"sentences": STORY, "arc": ["positive"]}, "arc", "1 tags for 3 sentences"),
        ("fill", {"sentences": STORY, "arc": ["happy", None, None]}, "arc", "unknown tag 'happy'"),
        ("fill", {"sentences": STORY, "starts": {"1": "Tom"}}, "starts", "sentence 1 is given"),
        ("fill", {"sentences": STORY, "starts": {"x": "Tom"}}, "starts.x", "is not written as"),
        ("fill", {"sentences": STORY, "sampler": "magic"}, "sampler", "smc"),
        ("fill", {"sentences": STORY, "sampler": "rerank"}, "sampler", "without latents"),
        ("fill", {"sentences": STORY, "model": "nothing"}, "model", "no model is called 'nothing' here"),
        ("fill", {"sentences": STORY, "model": "../default"}, "model", "no model is called"),
        ("fill", {"sentences": STORY, "model": "/"}, "model", "no model is called"),
        ("write", {"sentences": 65}, "sentences", "must be 64 or less"),
        ("write", {"samples": 201}, "samples", "must be 200 or less"),
        ("tag", {"sentences": ["Tom.", None]}, "sentences[1]", "must be text"),
        ("fill", {"sentences": STORY, "people": [{"name": "Tom", "pronoun": "it"}]}, "people[0].pronoun", "be 'he'"),
        ("fill", {"sentences": STORY, "people": [{"name": " "}]}, "people", "needs a name"),
        ("fill", {"sentences": STORY, "notes": ["word " * 55] * 3}, "notes", "the most is 120"),
        ("fill", {"sentences": STORY, "people": [{"name": "Tom"}] * 21}, "people", "people: at most 20 people"),
        ("fill", {"sentences": STORY, "voice": {"tense": "past"}}, "voice", "cannot follow a voice"),
        ("write", {"voice": {"tense": "future"}}, "voice.tense", "must be 'past' or 'present'"),
        ("words", {"sentences": STORY, "line": 4, "word": "x"}, "line", "no line 4 in a story of 3"),
        ("words", {"sentences": STORY, "line": 1, "word": "x", "model": "s2s"}, "model", "cannot offer another word"),
        ("fill", {"sentences": STORY, "arc": 5}, "arc", "arc: must be a list"),
        ("score", {"sentences": TOLD, "samples": 201}, "samples", "must be 200 or less"),
        ("posterior", {"sentences": STORY, "model": "lm"}, "model", "without latents"),
        ("explain", {"sentences": TOLD, "model": "s2s"}, "model", "s2s"),
        ("explain", {"sentences": TOLD, "arc": ["positive"]}, "arc", "1 tags for 2 sentences"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_the_one_shape(
    client: httpx.Client, path: str, body: dict[str, Any], field: str, says: str
) -> None:
    refused(client.post(f"/api/{path}", json=body), 422, field, says)


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    refused(client.post("/api/fill", json={"sentences": STORY, "model": "m" * 200_000}), 413, "body")


def stream(client: httpx.Client, body: dict[str, Any]) -> list[tuple[str, Any]]:
    with client.stream("POST", "/api/fill/stream", json=body) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("event")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_a_stream_gets_better_and_ends_with_the_answer(client: httpx.Client) -> None:
    body = {"sentences": STORY, "samples": 12, "candidates": 1, "seed": 3}
    events = stream(client, body)
    names = [name for name, _ in events if name not in ("progress", "waiting")]
    assert names == ["writing"] * names.count("writing") + ["candidates", "candidates", "done"]
    spoken = [data["lines"]["2"] for name, data in events if name == "writing"]
    assert spoken  # one sample, as it is written, before the first answer
    assert all(later.startswith(earlier.rstrip('."')) for earlier, later in pairwise(spoken)), spoken
    drawn = [data["drawn"] for name, data in events if name == "progress"]
    assert {0, 2, 12} <= set(drawn)  # and guesses between them, never backwards
    assert drawn == sorted(drawn)
    first, second = (data for name, data in events if name == "candidates")
    assert first["candidates"][0]["score"] <= second["candidates"][0]["score"]
    assert events[-1][1] == second == client.post("/api/fill", json=body).json()


def test_a_stream_tells_mistakes(client: httpx.Client) -> None:
    events = stream(client, {"sentences": TOLD})
    assert [name for name, _ in events if name != "waiting"] == ["progress", "error"]
    told = events[-1][1]["error"]
    assert (told["status"], told["field"]) == (422, "sentences")
    refused(client.post("/api/fill/stream", json={"sentences": 1}), 422, "sentences", "list")


def test_stories_and_branches(client: httpx.Client) -> None:
    answer = client.post("/api/stories", json={"title": "Leaks", "state": lines("A.", "B.")})
    assert answer.status_code == 201
    made = answer.json()
    story, first = made["id"], made["branch"]
    assert (made["title"], made["branches"], first["revision"], first["parent"]) == ("Leaks", 1, 1, None)
    plain = {"id": "", "text": "B.", "write": False, "locked": False, "start": "", "tag": None, "paragraph": False}
    assert first["state"]["lines"][1] == plain

    at = f"/api/stories/{story}/branches"
    grown = client.post(at, json={"parent": first["id"], "name": "other", "state": lines("A.", "C.")})
    assert grown.status_code == 201
    other = grown.json()
    assert (other["story"], other["parent"], other["name"]) == (story, first["id"], "other")
    tree = client.get(f"/api/stories/{story}").json()["tree"]
    assert [branch["id"] for branch in tree] == [first["id"], other["id"]]
    assert client.get(f"{at}/{other['id']}").json() == other

    state = {**lines("A.", "D."), "tray": [[{"any": "thing"}]], "temperature": 0.5}
    saved = client.put(f"{at}/{other['id']}", json={"state": state, "revision": 1}).json()
    assert (saved["revision"], saved["name"], saved["state"]["tray"]) == (2, "other", [[{"any": "thing"}]])
    assert client.get(f"{at}/{other['id']}").json() == saved
    stale = client.put(f"{at}/{other['id']}", json={"state": lines("X.", "Y."), "revision": 1, "name": "lost"})
    refused(stale, 409, "revision", "at revision 2, not 1")
    assert client.get(f"{at}/{other['id']}").json() == saved

    assert client.patch(f"/api/stories/{story}", json={"title": "Roofs"}).json()["title"] == "Roofs"
    listed = client.get("/api/stories", params={"limit": 1}).json()["stories"]
    assert [(one["id"], one["title"], one["branches"]) for one in listed] == [(story, "Roofs", 2)]

    assert client.delete(f"{at}/{first['id']}").status_code == 204
    assert client.get(f"{at}/{other['id']}").json()["parent"] is None
    refused(client.delete(f"{at}/{other['id']}"), 409, None, "delete the story")
    assert client.delete(f"/api/stories/{story}").status_code == 204
    refused(client.get(f"/api/stories/{story}"), 404, "story")
    refused(client.get(f"{at}/{other['id']}"), 404, "story")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("GET", "/api/stories/999", None, 404, "story"),
        ("GET", "/api/stories/0", None, 422, "story"),
        ("GET", "/api/stories/99999999999999999999", None, 422, "story"),
        ("GET", "/api/stories/x", None, 422, "story"),
        ("GET", "/api/stories?limit=0", None, 422, "limit"),
        ("GET", "/api/stories?offset=-1", None, 422, "offset"),
        ("PATCH", "/api/stories/999", {"title": "x"}, 404, "story"),
        ("PATCH", "/api/stories/999", {"title": ""}, 422, "title"),
        ("DELETE", "/api/stories/999", None, 404, "story"),
        ("POST", "/api/stories/999/branches", {"name": "x", "state": lines("A.", "B.")}, 404, "story"),
        ("GET", "/api/stories/999/branches/1", None, 404, "story"),
        ("PUT", "/api/stories/999/branches/1", {"state": lines("A.", "B."), "revision": 1}, 404, "story"),
        ("DELETE", "/api/stories/999/branches/1", None, 404, "story"),
        ("POST", "/api/stories", {"title": "x", "state": lines()}, 422, "state.lines"),
        ("POST", "/api/stories", {"title": "x", "state": {**lines("A.", "B."), "x": 1}}, 422, "state.x"),
        ("POST", "/api/stories", {"title": "x", "state": {**lines("A."), "tray": [0] * 61}}, 422, "state.tray"),
        ("POST", "/api/stories", {"title": "x" * 201, "state": lines("A.", "B.")}, 422, "title"),
        ("POST", "/api/stories", {"title": "x"}, 422, "state"),
    ],
)  # fmt: skip
def test_a_story_route_refuses(
    client: httpx.Client, method: str, path: str, body: Any, status: int, field: str
) -> None:
    refused(client.request(method, path, json=body), status, field)


def test_a_story_that_is_refused_in_part_names_every_such_part(client: httpx.Client) -> None:
    """The page saves the other parts then."""
    state = {**lines("A.", "B."), "people": [{"name": "Tom"}, {"name": ""}], "temperature": 9, "seed": "x", "str": 1}
    answer = client.post("/api/stories", json={"title": "", "state": state})
    refused(answer, 422, "title", "title: must not be empty (and 4 more)")
    assert {fault["field"]: fault["message"] for fault in answer.json()["error"]["fields"]} == {
        "title": "must not be empty",
        "state.people[1].name": "must not be empty",
        "state.temperature": "must be 5 or less",
        "state.seed": "must be a whole number",
        "state.str": "is not known here",
    }
    mended = {**state, "people": [{"name": "Tom"}]}
    for name in ("temperature", "seed", "str"):
        del mended[name]
    assert client.post("/api/stories", json={"title": "x", "state": mended}).status_code == 201


def test_what_json_cannot_hold_is_not_kept(client: httpx.Client) -> None:
    head = {"Content-Type": "application/json"}
    for value in ("NaN", "Infinity", "1e999"):
        body = '{"title": "x", "state": {"lines": [{}, {}], "tray": [VALUE]}}'.replace("VALUE", value)
        refused(client.post("/api/stories", content=body, headers=head), 422, "state.tray[0]", "JSON cannot")


def test_a_parent_of_another_story_is_refused(client: httpx.Client) -> None:
    one, two = (client.post("/api/stories", json={"title": "x", "state": lines("A.", "B.")}).json() for _ in range(2))
    body = {"parent": one["branch"]["id"], "name": "x", "state": lines("A.", "B.")}
    refused(client.post(f"/api/stories/{two['id']}/branches", json=body), 404, "parent")
