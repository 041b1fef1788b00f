"""Words while they are written: one sample's text so far, which is heard and never changed by being heard."""

import json
import threading
from itertools import pairwise
from typing import Any

import pytest

import fabula
from fabula import listening
from fake_server import Handler, fake_server, obedient

STORY = ["Tom was sad.", None, None, "Tom smiled."]


def written(filling: fabula.Filling) -> dict[int, str]:
    return {i: s.text for i, s in enumerate(filling.candidates[0].sentences, start=1) if s.written}


@pytest.mark.parametrize("call", [{"samples": 8}, {"samples": 40, "seed": 5}, {"samples": 8, "notes": ["It rained."]}])
def test_a_listener_hears_every_word_and_changes_none(monkeypatch: pytest.MonkeyPatch, call: dict[str, Any]) -> None:
    monkeypatch.setattr(listening, "SECONDS", 0.0)
    model = fabula.load("small")
    heard: list[dict[int, str]] = []
    with listening.listening(heard.append):
        answers = model.fill_iter(STORY, candidates=1, **call)
        first, spoken = next(answers), list(heard)
        *_, last = answers
    *_, unheard = model.fill_iter(STORY, candidates=1, **call)
    assert last.to_dict() == unheard.to_dict()
    assert set(spoken[0]) == {2}
    assert len(spoken[0][2].split()) == 1
    for before, after in pairwise(spoken):
        if set(before) == set(after) and call["samples"] == 8:
            assert all(after[line].startswith(before[line].rstrip('"')) for line in before), (before, after)
    if call["samples"] == 8:  # the first answer rests on one sample, which was the one that was heard
        assert spoken[-1] == written(first)
    count = len(heard)
    model.fill(STORY, samples=2)
    assert len(heard) == count  # nobody listens any more


def test_words_from_a_server_are_heard_as_they_come(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Half of the answer is sent; the other half only when that half was heard."""
    monkeypatch.setattr("fabula.served.model.DefaultJudge.critic", None)
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

    with fake_server(in_halves) as server:
        for name, value in {"address": server.address, "model": "m", "retries": 0, "seconds": 20}.items():
            monkeypatch.setenv(f"FABULA_SERVED_FAKE_{name.upper()}", str(value))
        monkeypatch.setenv("FABULA_CACHE", str(tmp_path))
        with listening.listening(hear):
            (filling,) = fabula.load("served:fake").fill_iter(STORY, samples=1, candidates=1)
    final = written(filling)
    assert heard
    assert all(final[line].startswith(text) for lines in heard for line, text in lines.items())
    assert heard[0] != final
