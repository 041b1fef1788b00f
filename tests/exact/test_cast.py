"""Who is in a story: counted names, barred_names that are not written, pronouns that mean somebody, no run twice."""

from __future__ import annotations

import pytest
import torch

from fabula.corpus.dataset import Stories
from fabula.corpus.people import People
from fabula.corpus.vocabulary import EOS, PAD, SPECIALS, Vocabulary
from fabula.models.build import build
from fabula.models.decoders.words import WordTokenizer
from fabula.models.lm import LM
from fabula.models.settings import LanguageSettings, ModelSettings
from fabula.sampling.batch import InfillBatch, infill_batch
from fabula.sampling.cast import Cast, echoed, repeated
from fabula.sampling.decode import Writer
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import DecodingConfig

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
    stories = Stories.from_sentences([[ids(s) for s in story] for story in told])
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


def a_language_model() -> LM:
    torch.manual_seed(0)
    model = build(
        ModelSettings(kind="lm", language=LanguageSettings(embedding=8, hidden=8)),
        len(VOCABULARY), torch.ones(1), torch.ones(1, 1),
    )  # fmt: skip
    assert isinstance(model, LM)
    return model.eval().requires_grad_(False)


def test_new_names_are_never_written_unless_an_opening_has_them() -> None:
    """300 sentences of a model that knows nothing: without the rule most name somebody else."""
    model, n = a_language_model(), 300
    decoding = DecodingConfig(top_k=0, max_words=12)
    blanks = a_page("Tom ran .", None)
    names = {}
    for name, told in (("any", blanks), ("given", CAST.without_new_names(blanks))):
        uniform = Noise([seeded(1)], [2], n, "cpu").uniform(decoding.max_words)
        written = Writer(model.decoder, RULES, decoding).story(told.repeat(n), None, None, uniform)
        names[name] = {VOCABULARY.words[w] for w in written.X[:, 1].flatten().tolist()} & {"Tom", "Ann", "Bo"}
    assert names == {"any": {"Tom", "Ann", "Bo"}, "given": {"Tom"}}


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


def test_what_would_complete_a_run_is_ruled_out() -> None:
    """After 5 6, all that has followed 5 6 before; <eos> never, and nothing where the run differs."""
    story = torch.tensor([[5, 6, 7, 5, 6, 8, 3, 6, 5, 9]])

    def barred(written: list[int], run: int) -> list[int]:
        scores = RULES.bar_repeats(torch.zeros(1, 12), story, torch.tensor([written]), run)
        return (scores[0] == float("-inf")).nonzero().squeeze(1).tolist()

    assert barred([5, 6], 3) == [7, 8]
    assert barred([6, 8], 3) == barred([7, 6], 3) == barred([5, 6], 4) == []


def test_no_run_stands_twice_in_a_written_story() -> None:
    """Runs of three in 200 stories of three written sentences, given ones counted; without the rule most have some."""
    model, n = a_language_model(), 200
    blanks = a_page("Tom ran on the dog .", None, None, None, "she sat on the dog .")

    def with_repeats(no_repeat: int) -> int:
        decoding = DecodingConfig(top_k=4, max_words=14, no_repeat=no_repeat)
        uniform = Noise([seeded(2)], [5], n, "cpu").uniform(decoding.max_words)
        written = Writer(model.decoder, RULES, decoding).story(blanks.repeat(n), None, None, uniform)
        count = 0
        for row, lengths in zip(written.X.tolist(), written.lengths.tolist(), strict=True):
            # The last two places of a sentence may be forced to end it, whatever they repeat.
            told = [s[: k - 1] if k < 13 else s[: k - 2] for s, k in zip(row, lengths, strict=True)]
            runs = [tuple(s[i : i + 3]) for s in told[1:4] for i in range(len(s) - 2)]
            runs += [tuple(s[i : i + 3]) for s in (told[0], told[4]) for i in range(len(s) - 2)]
            allowed = len([1 for s in (told[0], told[4]) for _ in s[2:]]) - len(
                {tuple(s[i : i + 3]) for s in (told[0], told[4]) for i in range(len(s) - 2)}
            )
            count += len(runs) - len(set(runs)) > allowed
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
