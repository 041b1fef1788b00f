"""A prompt and a suffix as a story with blanks: nothing of them is lost, and what comes back joins them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fabula
from fabula.completion import Gap
from fabula.corpus.tokenize import normalise

TEXT = st.text(alphabet='aB. !?"\n,', max_size=60)


@given(prompt=TEXT, suffix=TEXT, count=st.none() | st.integers(1, 9))
def test_every_word_of_prompt_and_suffix_is_kept(prompt: str, suffix: str, count: int | None) -> None:
    gap = Gap.of(prompt, suffix, count)
    assert " ".join([*gap.before, *([gap.opening] if gap.opening else [])]) == normalise(prompt)
    assert " ".join(gap.after) == normalise(suffix)
    assert gap.count == count or (count is None and gap.count >= 1)


@pytest.mark.parametrize(
    ("before", "after"), [("Tom was sad.", "He made it."), ("Tom was sad. ", " He made it."), ("", "")]
)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 9), most=st.none() | st.integers(1, 12))
def test_prompt_text_and_suffix_are_one_story(
    before: str, after: str, seed: int, most: int | None, random_models: Path
) -> None:
    narrator = fabula.load(random_models / "lds")
    found = fabula.complete(narrator, before, after, sentences=2, samples=2, seed=seed, max_tokens=most)
    (passage,) = found.passages
    assert passage.text == "".join(passage.pieces)
    assert (passage.finish == "length") <= (most is not None and passage.tokens <= most)
    if passage.finish == "stop":
        joined = before + passage.text + after
        assert "  " not in joined
        assert normalise(joined) == found.filling.candidates[0].text
