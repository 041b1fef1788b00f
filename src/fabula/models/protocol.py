"""What a model of stories implements, what it can do, and the registry of kinds that a recipe's `model.kind` names.

The programs above ask a model what it can do; they never ask what class it is. To add a kind: one file with a subclass
of `Model` and a builder under `@register_model("name")`, or an entry point of the group `fabula.models`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.models.batch import Batch
from fabula.models.decoders.protocol import Decoder, Tokenizer
from fabula.models.settings import ModelSettings
from fabula.registry import Registry
from fabula.shapes import Latents, PerSentence, PerState, PerStory, PerToken
from fabula.statespace.markov import MarkovChain

if TYPE_CHECKING:
    from fabula.corpus.states import StateSpace
    from fabula.corpus.taggers.protocol import Tagger
    from fabula.models.critic import Critic
    from fabula.models.s2s import S2S
    from fabula.models.slds import SLDS

Count = TypeVar("Count")


class Terms(NamedTuple):
    """What training maximises, summed over each story, in nats; the signed sum of the terms is the bound."""

    log_p_X: PerStory
    kl_Z: PerStory
    """KL of Z; in the collapsed objective log q(Z) - log p(Z) with S summed out, one sample of it."""
    kl_S: PerStory
    """KL(q(S) || p(S)) where S is not known; 0 where it is, or where it is summed out."""
    log_p_S: PerStory
    """log p(S) of known tags, where they stand apart from Z; 0 where S is summed out with Z."""
    log_q_S: PerStory
    """log q(S) at the known tags: supervision of the recognition network, no part of the bound."""

    def bound(self) -> PerStory:
        """A lower bound on log p(X), or log p(X, S) where S is known (hard or summed-out S only)."""
        return self.log_p_X - self.kl_Z - self.kl_S + self.log_p_S


class Model(nn.Module, ABC):
    """A distribution of stories X, given or together with tags S and latents Z.

    A model without latents implements `log_p_words` and, if it writes sentence by sentence, `decoder`. A model with
    latents is an `SLDS` or a subclass of it: `latent` is the model itself, with the factors that samplers need.
    """

    reads_tags: ClassVar[bool] = False
    """Whether the model is p(X | S): it can neither score nor write without a tag for every sentence."""
    sampling_defaults: Mapping[str, Mapping[str, Any]] = {}
    """By sampler: settings that suit this model better than the sampler's defaults (`sampling` in its config.json)."""
    tagger: Tagger | None = None
    """What checks the tags of written sentences; None: nothing does."""
    partial_states: StateSpace | None = None
    """The states whose factors the decoder reads one by one (`StateSpace.number`); None: whole states only."""

    @property
    def K(self) -> int:
        """States of S_i; 1 where there are no tags."""
        return 1 if self.p_S is None else self.p_S.K

    @property
    def D(self) -> int:
        """Size of Z_i; 0 where there are no latents."""
        return 0

    @property
    def has_latent(self) -> bool:
        return self.D > 0

    @property
    def has_tags(self) -> bool:
        """Whether q(S_i | X) exists and has something to decide (`log_q_S`)."""
        return False

    @property
    def likelihood(self) -> Literal["exact", "bound"]:
        """Whether log p(X) (for `reads_tags` log p(X | S)) is computed exactly or bounded from below."""
        return "bound" if self.has_latent else "exact"

    @property
    def latent(self) -> SLDS | None:
        """The model itself with its factors scaffold, dynamics and recognition; None where there are no latents."""
        return None

    @property
    def decoder(self) -> Decoder[Any] | None:
        """p(X_i | Z_i, S_i, X_:i), sentence by sentence; None for a model of whole stories."""
        return None

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The decoder's own; None for a model over the words of the corpus's vocabulary."""
        return None

    @property
    def critic(self) -> Critic | None:
        """What judges how well a story holds together; None: nothing does."""
        return None

    @property
    def reads_ahead(self) -> bool:
        """Whether the decoder, when it writes, reads the given sentences that follow (`Decoder.reads_until`)."""
        return self.decoder is not None and self.decoder.reads_until(0) > 0

    @property
    def story_decoder(self) -> S2S | None:
        """p(X | S) word by word along a whole story whose sentences are joined; None for every other model."""
        return None

    @property
    def p_S(self) -> MarkovChain | None:
        """p(S), a Markov chain over states; None for a model that only conditions on tags, or has none."""
        return None

    @abstractmethod
    def log_p_words(self, batch: Batch, Z: Latents | None = None) -> PerToken:
        """log p of every token given those before it, and Z in a model with latents; 0 at `<pad>`.

        A model with tags that does not read them (`reads_tags`) sums S out, so that the sum over tokens is log p(X).
        """

    def log_p_X(self, batch: Batch, Z: Latents | None = None) -> PerSentence:
        """log p(X_i | Z_i, X_:i) of every sentence."""
        return batch.per_sentence(self.log_p_words(batch, Z))

    def log_q_S(self, batch: Batch) -> PerState:
        """log q(S_i | X) of every sentence, in a model that has tags."""
        raise NotImplementedError(f"{type(self).__name__} has no q(S | X)")

    def token_count(self, tokens: Count, sentences: Count) -> Count:
        """Tokens of stories as the model counts them, from those with an `<eos>` for every sentence."""
        return tokens

    def first_word_scores(self) -> Float[Tensor, " vocab"]:
        """Unnormalised log-probabilities of a story's first word."""
        assert self.decoder is not None
        device = next(self.parameters()).device
        z = torch.zeros(1, self.D, device=device) if self.has_latent else None
        done = torch.zeros(1, dtype=torch.bool, device=device)
        return self.decoder.step(self.decoder.start(1, z), z, done)[0][0]


MODELS: Registry[Callable[[ModelSettings, int, Tensor, Tensor], Model]] = Registry("fabula.models", "model kind")
"""Builders of models from their settings, the size of the vocabulary, p(S_1) and p(S_i | S_{i-1})."""
register_model = MODELS.register
