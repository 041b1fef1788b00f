"""The narrator's tokenizer and the reader of its file: token for token as transformers', and bad files in one line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.errors import UserError
from fabula.models.decoders.bases import FILE, find_base, read_base
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import SPECIALS
from fabula.models.decoders.tokenizer import SubwordTokenizer
from gguf_writer import MERGES, write_tiny_base


@pytest.fixture(scope="module")
def real() -> SubwordTokenizer:
    if (path := find_base()) is None:
        pytest.skip("the base is not installed")
    return read_base(path).tokenizer


@pytest.fixture(scope="module")
def theirs(real: SubwordTokenizer) -> Any:
    """The same file's tokenizer as transformers converts it."""
    transformers, _ = pytest.importorskip("transformers"), pytest.importorskip("gguf")
    path = find_base()
    assert path is not None
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=FILE)


# Left out: what transformers' conversion of a GGUF file does not split off (numbers like a quarter), as SmolLM2's own
# tokenizer does; and rare planes, of which some bytes are no tokens.
CHARACTERS = st.characters(
    max_codepoint=0xFFFF, include_characters="0123456789", exclude_categories=["Cc", "Cs", "Cn", "Co", "Nd", "Nl", "No"]
)


@pytest.mark.system
@settings(max_examples=200, deadline=None)
@given(text=st.text(CHARACTERS, max_size=60))
def test_any_text_has_transformers_tokens_and_comes_back(real: SubwordTokenizer, theirs: Any, text: str) -> None:
    tokens = real.encode(text)
    assert tokens == theirs(" " + " ".join(text.split()), add_special_tokens=False)["input_ids"]
    assert min(tokens) >= SPECIALS
    assert real.decode(tokens) == " ".join(text.split())


def test_words_and_marks_stand_apart(real: SubwordTokenizer) -> None:
    tokens = real.encode('Tom\'s dog didn\'t eat 12 "apples", Zoë cried: "No!"')
    starts = [i for i, token in enumerate(tokens) if real.starts_word[token]]
    bounds = zip(starts, [*starts[1:], len(tokens)], strict=True)
    spelled = ["".join(real.texts[t] for t in tokens[a:b]) for a, b in bounds]
    assert spelled[:5] == ["Tom's", "dog", "didn't", "eat", "12"]
    assert spelled[5:] == ['"apples', '",', "Zo" + "ë", "cried", ":", '"No', '!"']
    assert not any(real.starts_word[:SPECIALS])
    assert real.texts[real.encode("dog")[0]] == "dog"


def test_a_tiny_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = read_gguf(write_tiny_base(tmp_path / "tiny.gguf"))
    assert file.metadata["tokenizer.ggml.merges"] == MERGES
    assert file.tensors["blk.1.attn_k.weight"].shape == (32, 64)
    assert abs(float(file.tensors["blk.1.ffn_up.weight"].std()) - 2 / 8) < 0.02
    tokenizer = read_base(tmp_path / "tiny.gguf").tokenizer
    assert tokenizer.decode([17 + 256 + 5, 2, 17 + 256 + 9]) == "Tom was"


@pytest.mark.parametrize("damage", ["cut", "short", "other", "empty"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    path = write_tiny_base(tmp_path / "tiny.gguf")
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-40], "short": content[:300], "other": b"PK" + content, "empty": b""}[damage])
    with pytest.raises(UserError, match=r"^\S+ is truncated, or is not a GGUF file") as error:
        list(read_gguf(path).tensors.values())
    assert "\n" not in str(error.value)
