"""Text to tokens and back: `WordText` for models over a vocabulary of whole words, `TokenText` for other tokenizers.

Everything that is about a vocabulary of words stands in `WordText`: known names in place of unknown ones, words that
can only be read as <unk>, opening words as ids, joining words to a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from fabula.corpus.people import NOBODY, People
from fabula.corpus.states import StateSpace
from fabula.corpus.tokenize import detokenise, normalise, tokenise
from fabula.corpus.vocabulary import EOS, PAD, UNK, Vocabulary
from fabula.errors import UserError
from fabula.models.decoders.protocol import Tokenizer
from fabula.models.protocol import Model
from fabula.results import Word
from fabula.sampling import names
from fabula.sampling.batch import InfillBatch, evidence, infill_batch
from fabula.sampling.decode import GREEDY, Writer
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import SampledStory
from fabula.sampling.task import Task

Names = Mapping[str, str]
"""Unknown names of a task, and the known ones that the model reads in their place."""


def close_quotes(text: str) -> str:
    """The same with its straight quotation marks in pairs: an opened one is closed at the end, a stray one goes
    (where there is nothing else it gets a second one: no sentence is empty).

    >>> close_quotes('She said, "Come home.')
    'She said, "Come home."'
    >>> close_quotes('Come home," she said.')
    'Come home, she said.'
    """
    last = text.rfind('"')
    if text.count('"') % 2 == 0 or last < 0:
        return text
    if text[last + 1 : last + 2].strip() and (last == 0 or text[last - 1].isspace()):
        return text + '"'
    return " ".join((text[:last] + text[last + 1 :]).split()) or text + '"'


def in_text(text: str, words: Sequence[tuple[str, float, bool]]) -> tuple[Word, ...]:
    """Words with their log-probabilities and whether they are unknown, each with the blank that follows it in the text.

    Where the text has another word, that word and all that follows are one.
    """
    left, spaced = normalise(text), []
    for word, figure, unknown in words:
        word = word if word and left.startswith(word) else left
        left = left[len(word) :]
        space = " " if left.startswith(" ") else ""
        left = left[len(space) :]
        if word:
            spaced.append(Word(word, space, figure, unknown))
    return tuple(spaced)


class TokenText:
    """Tasks as a model with a tokenizer of its own reads them, and what it wrote as text; it can spell every word."""

    def __init__(self, tokenizer: Tokenizer, states: StateSpace, rules: WordRules) -> None:
        self.tokenizer, self.states, self.rules = tokenizer, states, rules

    def encode(self, task: Task, names: Names | None = None) -> InfillBatch:
        """A batch of this one task."""
        rows = [None if s is None else self._ids(s, names) for s in task.sentences]
        allowed = torch.from_numpy(self.states.allowed(task.arc))
        openings = {number - 1: self._ids(words, names) for number, words in task.starts.items()}
        return infill_batch([rows], [allowed], [openings], self.rules.anywhere.device, self.rules.spelling.end)

    def _ids(self, text: str, names: Names | None) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, task: Task, story: SampledStory, names: Names) -> list[str]:
        """Every sentence of a sampled story: given ones as they were typed."""
        ids = [X[:length].tolist() for X, length in zip(story.X, story.lengths.tolist(), strict=True)]
        return [self.line(task, i, ids[i], names) if s is None else s for i, s in enumerate(task.sentences)]

    def line(self, task: Task, i: int, ids: Sequence[int], names: Names) -> str:
        """The text of a written sentence, or of its beginning."""
        return close_quotes(self.tokenizer.decode([token for token in ids if token != PAD]))

    def stand_ins(self, tasks: Sequence[Task]) -> list[dict[str, str]]:
        """Nothing: every name can be spelled."""
        return [{} for _ in tasks]

    def unknown_words(self, task: Task, names: Names) -> list[str]:
        return []

    def check_openings(self, task: Task, batch: InfillBatch, max_words: int) -> None:
        """A `UserError` where an opening cannot be written as it is."""
        for number in task.starts:
            if int((batch.opening[0, number - 1] != PAD).sum()) > max_words - 3:
                raise UserError(f"the opening of sentence {number} leaves no room to end it", field="starts")

    def words(self, text: str, ids: Sequence[int], log_p: Sequence[float]) -> tuple[Word, ...]:
        """The words, each with the blank behind it and the sum over its tokens; the last figure is the end's."""
        starts = [i for i, t in enumerate(ids[:-1]) if i == 0 or self.tokenizer.starts_word[t]]
        bounds = list(zip(starts, [*starts[1:], len(ids) - 1], strict=True))
        words = [(self.tokenizer.decode(ids[a:b]), math.fsum(log_p[a:b]), False) for a, b in bounds]
        return in_text(text, words)


class WordText(TokenText):
    """Tasks as a model over words reads them, and what it wrote as text."""

    def __init__(
        self, model: Model, vocabulary: Vocabulary, states: StateSpace, rules: WordRules, people: People = NOBODY
    ) -> None:
        super().__init__(rules.spelling.tokenizer, states, rules)
        self.model, self.vocabulary, self.people = model, vocabulary, people

    def _ids(self, text: str, names: Names | None) -> list[int]:
        return self.vocabulary.encode((names or {}).get(word, word) for word in tokenise(text))

    def line(self, task: Task, i: int, ids: Sequence[int], names: Names) -> str:
        typed_name = {known: name for name, known in names.items()}
        words = self.vocabulary.decode(word for word in ids if word not in (EOS, PAD))
        text = close_quotes(detokenise([typed_name.get(word, word) for word in words]))
        # Opening words stay as they were typed.
        return text if i + 1 in task.starts else text[:1].upper() + text[1:]

    @torch.inference_mode()
    def stand_ins(self, tasks: Sequence[Task]) -> list[dict[str, str]]:
        """Known names for the unknown ones of each task's given sentences and openings."""
        stories = []
        for task in tasks:
            given = [tokenise(s) for s in (*task.sentences, *task.starts.values()) if s is not None]
            stories.append((given, names.unknown_names(given, self.vocabulary)))
        if not any(unknown for _, unknown in stories):
            return [{} for _ in tasks]
        return names.stand_ins(stories, self._known_names, self._log_p_of_versions, self.people)

    @cached_property
    def _known_names(self) -> list[str]:
        return names.known_names(self.model, self.vocabulary)

    def unknown_words(self, task: Task, names: Names) -> list[str]:
        """The words of the given sentences that the model can only read as <unk>, in the order of the story."""
        words = [word for sentence in task.sentences for word in tokenise(sentence or "")]
        spoken = [word for word in words if any(letter.isalnum() for letter in word)]
        return list(dict.fromkeys(word for word in spoken if self.vocabulary.encode([names.get(word, word)]) == [UNK]))

    def check_openings(self, task: Task, batch: InfillBatch, max_words: int) -> None:
        for number, words in task.starts.items():
            for word, id in zip(tokenise(words), batch.opening[0, number - 1].tolist(), strict=False):
                if id == UNK:
                    fault = f"the opening of sentence {number} has a word the model does not know: {word!r}"
                    raise UserError(fault, field="starts")
        super().check_openings(task, batch, max_words)

    def words(self, text: str, ids: Sequence[int], log_p: Sequence[float]) -> tuple[Word, ...]:
        """The words as they were typed, each with the blank behind it; the last id and figure are the <eos>'s."""
        figures = zip(tokenise(text), log_p[:-1], ids[:-1], strict=True)
        return in_text(text, [(word, figure, number == UNK) for word, figure, number in figures])

    def _log_p_of_versions(self, versions: list[list[list[str]]]) -> list[float]:
        """log p of the sentences of each version, in a row, Z at the mean of its evidence."""
        if self.model.decoder is None:
            return [0.0] * len(versions)
        rows = [[self.vocabulary.encode(words) for words in sentences] for sentences in versions]
        batch = infill_batch(rows, device=self.rules.anywhere.device)
        latent = self.model.latent
        Z = None if latent is None else evidence(latent, batch.X, batch.lengths).phi.mean
        read = Writer(self.model.decoder, self.rules, GREEDY).story(batch, None, Z)
        return read.log_p.sum(1).tolist()
