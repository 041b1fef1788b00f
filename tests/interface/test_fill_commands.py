"""The commands that use a model: every mistake one clear line and exit code 2; the same seed, the same bytes."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import fabula
from doors import Refused
from fabula.cli import main, options
from fabula.errors import UserError

STORY = ["Mia's car would not start.", "_", "_", "Mia made it to work on time."]


pytestmark = pytest.mark.usefixtures("installed")


def run(*words: str) -> None:
    assert main([*words]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Tom was sad.", "Tom was glad."], "no sentence is missing"),
        (["_", "_", "_"], "fabula write"),
        (["Tom was sad.", "_", "  "], "sentence 3 is empty"),
        (["Tom was sad.", "_", "word " * 10_000], "sentence 3 has 10,000 words"),
        (["Tom was sad.", "_", "w" * 10_000], "sentence 3 has 10,000 characters"),
        (["_"], "a story has 2 to 64 sentences, not 1"),
        ([*["Tom was sad."] * 64, "_"], "a story has 2 to 64 sentences, not 65"),
        ([], "no story was given"),
        (["--file", "/nowhere/story.txt"], "cannot read /nowhere/story.txt"),
        ([*STORY, "--file", "x.txt"], "both given"),
        ([*STORY, "--sampler", "rerank"], "rerank is for models without latents"),
        ([*STORY, "--samples", "0"], "samples must be at least 1"),
        ([*STORY, "--top-k", "-1"], "top_k must be at least 0, not -1"),
        ([*STORY, "--sampler", "gibbs", "--chains", "0"], "chains must be at least 1, not 0"),
        ([*STORY, "--chains", "3"], "smc has no setting 'chains'; it has samples, top_k, temperature"),
        (["Tom", "was", "sad", "_"], "put each one in quotes"),
        (["Tom was _ today.", "_", "Tom was glad."], "sentence 1 has a blank (_) inside"),
        ([*STORY, "--temperature", "nan"], "temperature must be finite, not nan"),
        ([*STORY, "--starts", "9:She"], "sentence 9 of a story of 4"),
        ([*STORY, "--starts", "She"], "--starts wants"),
        ([*STORY, "--starts", "2:She zorbled"], "does not know: 'zorbled'"),
        ([*STORY, "--starts", "2:" + "She was " * 20], "leaves no room"),
        ([*STORY, "--model", "nothing"], "no model and no folder is called 'nothing'"),
        ([*STORY, "--threads", "0"], "threads must be at least 1"),
        ([*STORY, "--device", "tpu"], "tpu"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(arguments: list[str], says: str, refused: Refused) -> None:
    line = refused("fill", *arguments)
    assert says in line
    assert len(line) < 300


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--candidates", "0"], "candidates must be at least 1"),
        (["--temperature", "-1"], "temperature must be above 0"),
        (["--sampler", "magic"], "unknown sampler"),
        (["--arc", "+ purple -"], "unknown tag 'purple'"),
        (["--arc", "+ -"], "the arc has 2 tags for 3 sentences"),
        (["--starts", "1:He"], "sentence 1 is given"),
        (["--seed", str(2**70)], "seed must be a number of 64 bits"),
        (["--person", "Tom:it"], "a pronoun is"),
    ],
)
def test_options_are_checked_before_a_model_is_loaded(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(options, "load_model", lambda args: pytest.fail("a model was loaded"))
    assert complaint in refused("fill", "Tom was sad.", "_", "Tom was glad.", *words)


@pytest.mark.parametrize(("place", "what"), [("none", "is no folder"), ("empty", "holds no model")])
def test_a_wrong_place_for_models_is_named(
    place: str, what: str, random_models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    refused: Refused, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Where a model is not found, and in the list."""
    (tmp_path / "empty").mkdir()
    says = f"FABULA_MODELS is set to {tmp_path / place}, which {what}"
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path / place))
    assert says in refused("tag", "Tom was sad.", "Tom was glad.", "--model", "nothing")
    monkeypatch.setattr("fabula.catalogue.PACKAGED", random_models)
    run("models", "--json")
    listed = capsys.readouterr()
    assert says in listed.err
    assert len(json.loads(listed.out)) == 4


@pytest.mark.parametrize("kind", ["lm", "s2s"])
def test_a_model_without_latents_reranks_and_says_so(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("fill", *STORY, "--model", kind, "--sampler", "gibbs", "--samples", "5", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["sampler"] == "rerank"
    assert "cannot run gibbs" in answer["notes"][0]


@pytest.mark.parametrize("kind", ["default", "lm"])
def test_words_new_to_the_model_are_named(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, in the order of the story; a name that a known one stands in for is not among them."""
    story = ["Zorblax went zorbing.", "_", "The zorbing was zany, 🙂!"]
    run("fill", *story, "--model", kind, "--sampler", "smc", "--samples", "4", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["notes"][-1] == ("4 words are new to this model and were read as unknown: went, zorbing, The, zany")
    assert "Zorblax" in answer["names"]
    run("fill", " ".join(f"zorb{n}" for n in range(30)), "_", "--samples", "4")
    (note,) = (line for line in capsys.readouterr().out.splitlines() if "30 words are new" in line)
    assert note.endswith(", ...")
    assert len(note) < 200


@pytest.mark.parametrize("sampler", ["smc", "gibbs", "rerank"])
def test_fewer_candidates_than_asked_for_are_noted(sampler: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At the end only: on the way others may still come."""
    kind = "lm" if sampler == "rerank" else "default"
    arguments = [*STORY, "--model", kind, "--sampler", sampler]
    run("fill", *arguments, "--samples", "2", "--candidates", "5", "--json")
    answer = json.loads(capsys.readouterr().out)
    found = len(answer["candidates"])
    assert found <= 2
    note = f"only {found} of the 5 candidates: no other story was among the samples (2); draw more of them"
    assert answer["notes"] == [note]
    *early, last = fabula.load(kind).fill_iter(STORY, sampler=sampler, samples=40, candidates=41)
    assert len(last.notes) == 1
    assert sum(len(answer.notes) for answer in early) == 0
    assert not fabula.load(kind).fill(STORY, sampler=sampler, samples=40, candidates=1).notes


def test_what_is_printed_tells_given_from_written(capsys: pytest.CaptureFixture[str]) -> None:
    story = ["Mia's \x07car 🙂 would not start.", "_", "Mia made it to work on time."]
    run("fill", *story, "--samples", "4", "--candidates", "1", "--verbose", "--color", "never", "--arc", "- ? +")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "   ●·· Mia's \x07car 🙂 would not start."
    assert lines[2].startswith(" > ")
    assert lines[3] == "   ··● Mia made it to work on time."
    assert any("effective samples" in line for line in lines)
    run("fill", *story, "--samples", "4", "--color", "always")
    assert "\x1b[1m" in capsys.readouterr().out


def test_a_story_from_a_file_and_from_a_paragraph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    lines, paragraph = tmp_path / "story.txt", tmp_path / "paragraph.txt"
    lines.write_text("\n".join(STORY), encoding="utf-8")
    paragraph.write_text(" ".join(STORY), encoding="utf-8")
    files = (["--file", str(lines)], ["--file", str(paragraph), "--paragraph"])
    for source in (STORY, *files, [" ".join(STORY), "--paragraph"]):
        run("fill", *source, "--samples", "4", "--json")
        answers.append(capsys.readouterr().out)
    assert len(set(answers)) == 1


def test_write_takes_its_length_from_the_arc(refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    run("write", "--arc=--.++.+", "--samples", "3", "--json")
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    names = {"-": "negative", ".": "neutral", "+": "positive"}
    assert [sentence["asked"] for sentence in candidate["sentences"]] == [names[sign] for sign in "--.++.+"]
    assert all(sentence["written"] for sentence in candidate["sentences"])
    assert "2 to 64" in refused("write", "--sentences", "65")


@pytest.mark.parametrize("kind", ["default", "lm", "s2s"])
def test_tag_and_score(kind: str, refused: Refused, capsys: pytest.CaptureFixture[str]) -> None:
    story = ["Tom was sad.", "Tom was glad."]
    for command in ("tag", "score"):
        assert "_ is a sentence that is missing" in refused(command, "Tom was sad.", "_")
    run("tag", *story, "--model", kind, "--json")
    tagged = json.loads(capsys.readouterr().out)
    assert all(name in ("negative", "neutral", "positive") for name in tagged["tags"])
    assert all(abs(sum(shares.values()) - 1) < 1e-3 for shares in tagged["probabilities"])
    run("score", *story, "--model", kind, "--json")
    scored = json.loads(capsys.readouterr().out)
    assert scored["kind"] == ("bound" if kind == "default" else "exact")
    assert scored["log_p"] < 0
    assert scored["words"] == (9 if kind == "s2s" else 10)
    if kind != "default":
        assert abs(sum(scored["log_p_sentences"]) - scored["log_p"]) < 1e-2


def test_blanks_as_people_type_them(capsys: pytest.CaptureFixture[str]) -> None:
    one = ["Tom was sad. _ Tom was glad."]
    for typed in (["Tom was sad.", "___", "Tom was glad."], one, [one[0].replace("_", "____")], [*one, "--paragraph"]):
        run("fill", *typed, "--samples", "2", "--json")
        (first, *_) = json.loads(capsys.readouterr().out)["candidates"]
        assert [sentence["written"] for sentence in first["sentences"]] == [False, True, False]
        assert first["sentences"][2]["text"] == "Tom was glad."


@pytest.mark.parametrize("kind", ["default", "lm", "s2s"])
def test_a_sentence_alone_has_a_tag(kind: str) -> None:
    """Where sentences are read one by one, as here, the same as in a story; and the rules of a story's hold for it."""
    narrator = fabula.load(kind)
    alone, story = narrator.tag(["Tom was sad."]), narrator.tag(["Tom was sad.", "Tom was glad."])
    assert alone.sentences == ("Tom was sad.",)
    assert alone.tags == story.tags[:1]
    assert alone.probabilities[0] == pytest.approx(story.probabilities[0], abs=1e-6)
    for sentence, says in (("  ", "sentence 1 is empty"), ("word " * 300, "sentence 1 has 300 words")):
        with pytest.raises(UserError, match=says):
            narrator.tag([sentence])
    with pytest.raises(UserError, match="2 to 64 sentences, not 0"):
        narrator.tag([])


@pytest.mark.parametrize("name", ["default", "lds"])
def test_shares_add_up_to_one(name: str) -> None:
    """In double precision: single precision left 1.0000000198."""
    model = fabula.load(name)
    tagged: tuple[Any, ...] = model.tag(["Tom was sad.", "He was glad."]).probabilities
    for row in (*model.posterior(["Tom was sad.", None, "Tom was glad."], samples=97).tags, *tagged):
        assert math.fsum(row.values()) == pytest.approx(1, abs=1e-12)
        assert max(row.values()) <= 1


def test_models_lists_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    run("models", "--json")
    listed = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert set(listed) == {"default", "lds", "lm", "s2s"}
    assert listed["default"]["kind"] == "slds"
    assert listed["default"]["figures"] == {"ppl": 12.5}
    run("models")
    printed = capsys.readouterr()
    assert "ppl 12.5" in printed.out
    assert printed.err == ""
