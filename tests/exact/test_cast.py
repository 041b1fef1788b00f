"""Who is in a story: counted names, barred_names that are not written, pronouns that mean somebody, no run twice."""

from typing import Any

import pytest
import torch

from fabula.corpus.people import People
from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.models.decoders.tokenizer import WordTokenizer
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.cast import Cast, echoed, repeated
from fabula.sampling.decode import Writer
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig
from small import small_model, stories_of

TYPES = "Tom Ann Bo He he She she her I my dog mother ran sat the . Then Friday friday on"
WORDS = TYPES.split()
VOCABULARY = Vocabulary((*SPECIALS, *WORDS))
PEOPLE = People(("Tom", "Bo"), ("Ann",))
RULES = WordRules.of(WordTokenizer(VOCABULARY), "cpu", PEOPLE.names)
CAST = Cast(PEOPLE, RULES)


def ids(text: str) -> list[int]:
    return VOCABULARY.encode(text.split())


def a_page(*sentences: str | None) -> InfillBatch:
    return infill_batch([[None if s is None else ids(s) for s in sentences]])


def whole(*sentences: str) -> torch.Tensor:
    """A written story as a sampler leaves it."""
    rows = [[*ids(s), EOS] for s in sentences]
    width = max(map(len, rows))
    return torch.tensor([[row + [PAD] * (width - len(row)) for row in rows]])


def test_names_are_counted_not_listed() -> None:
    """Tom and Ann by their pronouns; `Friday` never begins a sentence, `Then` always does, `He` is no name."""
    told = [
        ["Tom ran .", "he sat on Friday .", "Then Tom sat .", "the dog ran on friday ."],
        ["Ann sat .", "she ran .", "Then her dog sat on Friday .", "the dog sat by Ann ."],
        ["the dog ran on Friday .", "He saw Tom .", "Then he ran ."],
    ]
    stories = stories_of([[ids(s) for s in story] for story in told])
    assert People.count(stories, VOCABULARY) == People(("Tom",), ("Ann",))


@pytest.mark.parametrize(
    ("given", "free"),
    [
        (("Tom ran .", None), {"Tom"}),
        (("Tom ran .", None, "Ann sat ."), {"Tom", "Ann"}),
        (("the dog ran .", None), {"Tom", "Ann", "Bo"}),
    ],
)
def test_new_names_are_those_that_no_given_sentence_has(given: tuple[str | None, ...], free: set[str]) -> None:
    """Where nobody is named, everybody may be."""
    barred = CAST.without_new_names(a_page(*given)).barred_names
    assert barred is not None
    assert {name for name, out in zip(PEOPLE.names, barred[0].tolist(), strict=True) if not out} == free


def written_by(blanks: InfillBatch, n: int, seed: int, **decoding: Any) -> Any:
    """The stories that a random language model writes."""
    model = small_model("lm", words=len(VOCABULARY), p_initial=[1.0], language={"hidden": 8}).requires_grad_(False)
    rules = DecodingConfig(**decoding)
    uniform = Noise([seeded(seed)], blanks.sentences, n, "cpu").uniform(rules.max_words)
    return Writer(model.decoder, RULES, rules).story(blanks.repeat(n), None, None, uniform)


def test_new_names_are_never_written_unless_an_opening_has_them() -> None:
    """300 sentences of a model that knows nothing: without the rule most name somebody else."""
    blanks = a_page("Tom ran .", None)
    for batch, names in ((blanks, {"Tom", "Ann", "Bo"}), (CAST.without_new_names(blanks), {"Tom"})):
        written = written_by(batch, 300, seed=1, top_k=0, max_words=12).X[:, 1]
        assert {VOCABULARY.words[w] for w in written.flatten().tolist()} & {"Tom", "Ann", "Bo"} == names


@pytest.mark.parametrize(
    ("story", "given", "clashes"),
    [
        (("Tom ran .", "he sat ."), (0,), 0),
        (("Tom ran .", "she sat ."), (0,), 1),
        (("Tom ran .", "I sat .", "my dog ran ."), (0,), 2),
        (("the dog ran .", "she sat ."), (0,), 0),
        (("Tom ran .", "the mother sat .", "she ran ."), (0,), 0),
        (("Tom ran .", "she ran .", "the mother sat ."), (0,), 1),
        (("Tom ran .", "she sat .", "Ann ran ."), (0, 2), 0),
        (("the ran .", "he ran .", "he sat ."), (0,), 2),
        (("She sat .", "she ran .", "her dog sat ."), (0,), 0),
    ],
)
def test_a_pronoun_wants_somebody(story: tuple[str, ...], given: tuple[int, ...], clashes: int) -> None:
    """Given sentences vouch throughout; written ones from where they bring somebody in."""
    blanks = a_page(*(s if i in given else None for i, s in enumerate(story)))
    assert CAST.clashes(RULES.spelling.words(whole(*story)), blanks).tolist() == [clashes]


def test_sentences_that_say_the_same_are_counted_where_written() -> None:
    blanks = a_page("Tom ran .", None, None, None)
    X = whole("Tom ran .", "Tom ran .", "he sat .", "he sat .")
    assert repeated(X, blanks).tolist() == [3]
    assert repeated(X, a_page("Tom ran .", None, None, "he sat .")).tolist() == [2]
    assert repeated(whole("Tom ran .", "he ran .", "he sat .", "she sat ."), blanks).tolist() == [0]


def test_no_run_stands_twice_in_a_written_story() -> None:
    """Runs of three in 200 stories of three written sentences, given ones counted; without the rule most have some."""
    blanks = a_page("Tom ran on the dog .", None, None, None, "she sat by Ann .")

    def with_repeats(no_repeat: int) -> int:
        written = written_by(blanks, 200, seed=2, top_k=4, max_words=14, no_repeat=no_repeat)
        count = 0
        for row, lengths in zip(written.X.tolist(), written.lengths.tolist(), strict=True):
            # The last two places of a sentence may be forced to end it, whatever they repeat.
            words = [s[: k - 1] if k < 13 else s[: k - 2] for s, k in zip(row, lengths, strict=True)]
            runs = [tuple(s[i : i + 3]) for s in words for i in range(len(s) - 2)]
            count += len(runs) > len(set(runs))
        return count

    assert with_repeats(0) > 100
    assert with_repeats(3) == 0


def test_words_of_content_echo_in_their_own_written_sentence() -> None:
    common = RULES.spelling.numbers(VOCABULARY.words[4 : VOCABULARY.index["ran"]])

    def faults(*sentences: str) -> list[float]:
        found: list[float] = echoed(RULES.spelling.words(whole(*sentences)), common, blanks).tolist()
        return found

    blanks = a_page("Tom ran .", None, None)
    assert faults("Tom ran ran .", "Tom sat Tom .", "he ran on sat ran .") == [1]
    assert faults("Tom ran ran .", "Tom sat .", "he sat .") == [0]


def test_a_writer_says_who_is_there_and_with_which_pronoun() -> None:
    """Bo, whom the corpus calls he, is she here: `he` is a fault then, and nobody else may be named."""
    page = infill_batch([[ids("Bo ran ."), None]])
    him, her = (whole("Bo ran .", f"{word} sat .") for word in ("He", "She"))
    cast = CAST.with_people({"Bo": "she"})
    assert [float(CAST.clashes(RULES.spelling.words(X), page)) for X in (him, her)] == [0, 1]
    assert [float(cast.clashes(RULES.spelling.words(X), page)) for X in (him, her)] == [1, 0]
    they = CAST.with_people({"Bo": "they"})
    assert [float(they.clashes(RULES.spelling.words(X), page)) for X in (him, her)] == [1, 1]
    nobody = infill_batch([[ids("the dog sat ."), None]])
    assert not bool(CAST.without_new_names(nobody).barred_names.any())  # type: ignore[union-attr]
    assert bool(cast.without_new_names(nobody).barred_names.all())  # type: ignore[union-attr]
    assert CAST.with_people({}) is CAST
