"""The switching linear dynamical system over a pretrained decoder: the narrator with Z as soft prompt.

    p(S, Z, X) = prod_i p(S_i | S_{i-1}) p(Z_i | Z_{i-1}, S_i) p(X_i | Z_:i, X_:i)

Z_i is mapped to a vector that is added to the mood token and to the words of sentence i. Earlier sentences keep theirs
while later ones are told, so a sentence sees Z_1 ... Z_i. With the maps at 0 the law of X is the narrator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.models.chain import Chain, chain
from fabula.models.decoders.rows import BOS, END, FIRST_MOOD, FREE, MOODS
from fabula.models.decoders.transformer import Transformer
from fabula.models.dynamics import DiagonalDynamics, Dynamics
from fabula.models.gaussian import Potential
from fabula.models.recognition import Evidence
from fabula.models.scaffold import Scaffold

Ids = Sequence[int]


class Told(NamedTuple):
    """Stories of one length as plain rows of the narrator (`decoders/rows.py`); a story may be told in several rows."""

    ids: Int[Tensor, "row token"]
    sentence: Int[Tensor, "row token"]
    """Which sentence a token belongs to; -1 at `<bos>` and padding."""
    story: Int[Tensor, " row"]
    S: Int[Tensor, "batch sent"]
    features: Float[Tensor, "batch sent features"]
    """What the potentials read of each sentence."""
    lengths: Int[Tensor, "batch sent"]
    """Tokens of each sentence with its end."""

    @property
    def present(self) -> Bool[Tensor, "batch sent"]:
        return self.lengths > 0

    @property
    def counted(self) -> Bool[Tensor, "row token"]:
        """The tokens that are paid for: the words of every sentence and its end, never its mood."""
        mood = (self.ids >= FREE) & (self.ids < FIRST_MOOD + MOODS)
        return (self.sentence >= 0) & ~mood


def tell(
    X: Sequence[Sequence[Ids]], S: Sequence[Ids], features: Tensor, moods: Sequence[Ids] | None = None,
    cuts: Sequence[int] | None = None,
) -> Told:  # fmt: skip
    """Stories as rows. Without `moods` they are free. From sentence `cuts[n]` on a story is told in a second row, so
    that the sentences before it are hidden from those after it; 0 cuts nothing."""
    rows: list[tuple[int, list[int], list[int]]] = []
    for n, story in enumerate(X):
        cut = cuts[n] if cuts else 0
        for part in (range(cut), range(cut, len(story))):
            if not part:
                continue
            ids, sentence = [BOS], [-1]
            for i in part:
                ids += [moods[n][i] if moods else FREE, *story[i], END]
                sentence += [i] * (len(story[i]) + 2)
            rows.append((n, ids, sentence))
    width = -(-max(len(ids) for _, ids, _ in rows) // 8) * 8
    return Told(
        torch.tensor([ids + [BOS] * (width - len(ids)) for _, ids, _ in rows]),
        torch.tensor([sentence + [-1] * (width - len(sentence)) for _, _, sentence in rows]),
        torch.tensor([n for n, _, _ in rows]), torch.tensor([list(s) for s in S]), features.float(),
        torch.tensor([[len(sentence) + 1 for sentence in story] for story in X]),
    )  # fmt: skip


class LearnedPotentials(nn.Module):
    """phi_i(Z_i) by a small network of the sentence's features."""

    def __init__(self, features: int, D: int, hidden: int = 256) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, 2 * D))

    def forward(self, features: Float[Tensor, "batch sent features"]) -> Potential:
        mean, log_precision = self.network(features).chunk(2, -1)
        # Softly bounded, so that no sentence can be infinitely sure; unsure at first.
        return Potential(mean, (5 * torch.tanh((log_precision - 1) / 5)).exp())


class FixedPotentials(nn.Module):
    """phi_i(Z_i) = N(Z_i; W features_i, 1 / precision): Z is anchored to the features. Precision 0 says nothing."""

    W: Tensor

    def __init__(self, W: Float[Tensor, "features latent"], precision: float) -> None:
        super().__init__()
        self.register_buffer("W", W)
        self.precision = precision

    def forward(self, features: Float[Tensor, "batch sent features"]) -> Potential:
        mean = features @ self.W
        return Potential(mean, torch.full_like(mean, self.precision))


def with_openings(p_initial: Float[Tensor, " state"], p_next: Float[Tensor, "state state"]) -> Scaffold:
    """A scaffold of 2 K states: K + k is state k of a story's first sentence. The step into Z_1 (from Z_0 = 0) then has
    parameters of its own, without which a Z that hardly moves could not differ from story to story either."""
    never = torch.zeros_like(p_next)
    both = torch.cat([p_next, never], 1)
    return Scaffold(torch.cat([torch.zeros_like(p_initial), p_initial]), torch.cat([both, both]))


class LatentNarrator(nn.Module):
    """The narrator's network with a scaffold, dynamics, potentials and the maps of Z to its soft prompt."""

    def __init__(
        self, network: Transformer, scaffold: Scaffold, potentials: LearnedPotentials | FixedPotentials, D: int
    ) -> None:
        super().__init__()
        self.network, self.scaffold, self.potentials = network, scaffold, potentials
        self.dynamics: Dynamics = DiagonalDynamics(scaffold.K, D)
        self.to_mood, self.to_words = (nn.Linear(D, network.sizes.width, bias=False) for _ in range(2))
        for linear in (self.to_mood, self.to_words):
            nn.init.zeros_(linear.weight)
        self.bf16 = False
        """Whether the network runs in half precision; everything about Z is in single precision always."""

    @property
    def K(self) -> int:
        """States of a sentence; `with_openings` has twice as many."""
        return self.scaffold.K // 2

    @property
    def D(self) -> int:
        return self.dynamics.D

    def states(self, S: Int[Tensor, "batch sent"]) -> Int[Tensor, "batch sent"]:
        """Tags as states of the scaffold; where there is no tag, state 0 (q needs one, any serves)."""
        first = torch.arange(S.shape[1], device=S.device) == 0
        return S.clamp(min=0) + self.K * first

    def evidence(self, told: Told) -> Evidence:
        """phi, and q(S | X), which is the tagger's: tags are a function of the text."""
        corner = F.one_hot(self.states(told.S), self.scaffold.K).to(told.features.dtype)
        return Evidence(self.potentials(told.features).where(told.present), corner.log())

    def posterior(self, told: Told, observed: Bool[Tensor, "batch sent"] | None = None) -> tuple[Chain, Potential]:
        """q(Z | X): the exact smoothing law given the potentials of the observed sentences, and those potentials."""
        phi = self.evidence(told).phi
        phi = phi if observed is None else phi.where(observed)
        return chain(self.dynamics, self.states(told.S), phi, told.present), phi

    def log_p_Z(self, Z: Float[Tensor, "batch sent latent"], present: Tensor) -> Float[Tensor, " batch"]:
        """log sum_S p(S) p(Z | S)."""
        earlier = torch.cat([torch.zeros_like(Z[:, :1]), Z[:, :-1]], 1)
        return self.scaffold.log_marginal(self.dynamics.log_prob_each(earlier, Z), present)

    def read(
        self, ids: Int[Tensor, "row token"], sentence: Int[Tensor, "row token"], Z: Float[Tensor, "row sent latent"]
    ) -> Float[Tensor, "row token width"]:
        """The network's features of every token, Z_i beside the tokens of sentence i."""
        both = torch.stack([self.to_mood(Z), self.to_words(Z)], 1).flatten(1, 2)
        mood = (ids >= FREE) & (ids < FIRST_MOOD + MOODS)
        at = sentence.clamp(min=0) + Z.shape[1] * ~mood
        soft = both.gather(1, at.unsqueeze(-1).expand(-1, -1, both.shape[-1])) * (sentence >= 0).unsqueeze(-1)
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.bf16):
            features: Tensor = self.network(ids, soft)
        return features

    def log_p_sentences(
        self, told: Told, Z: Float[Tensor, "batch sent latent"], only: int | None = None
    ) -> Float[Tensor, "batch sent"]:
        """log p(X_i | Z_:i, X_:i) of every sentence, or of one `only`: then nothing behind it is read."""
        ids, sentence, counted = told.ids, told.sentence, told.counted
        if only is not None:
            counted = counted & (sentence == only)
            stop = int(counted.any(0).nonzero().max()) + 1
            ids, sentence, counted = ids[:, :stop], sentence[:, :stop], counted[:, :stop]
        features = self.read(ids, sentence, Z[told.story])
        row, place = counted[:, 1:].nonzero(as_tuple=True)
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.bf16):
            logits = self.network.logits(features[row, place])
        log_p = -F.cross_entropy(logits.float(), ids[row, place + 1], reduction="none")
        at = told.story[row] * Z.shape[1] + sentence[row, place + 1]
        return log_p.new_zeros(Z.shape[0] * Z.shape[1]).index_add(0, at, log_p).view(Z.shape[:2])

    def log_p_sentence(
        self, told: Told, Z: Float[Tensor, "batch sent latent"], i: int, s: int
    ) -> Float[Tensor, " batch"]:
        """log p(X_i | Z_i, X_:i) of sentence i alone; S_i = s acts through Z_i."""
        return self.log_p_sentences(told, Z, i)[:, i]


@torch.no_grad()
def fit_dynamics(dynamics: DiagonalDynamics, Z: Float[Tensor, "story sent latent"], states: Tensor) -> None:
    """A, bias and B of every state by maximum likelihood, Z being known: linear regression of Z_i on Z_{i-1}."""
    earlier = torch.cat([torch.zeros_like(Z[:, :1]), Z[:, :-1]], 1).flatten(0, 1)
    here, state = Z.flatten(0, 1), states.flatten()
    for k in range(dynamics.K):
        x, y = earlier[state == k].double(), here[state == k].double()
        if not len(x):
            continue
        x = torch.cat([x, x.new_ones(len(x), 1)], 1)
        # A little ridge: before the first sentence there is nothing to regress on, Z_0 = 0.
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        weights = torch.linalg.solve(x.T @ x + 1e-3 * eye, x.T @ y)
        dynamics.A[k] = weights[:-1].T.to(dynamics.A.dtype)
        dynamics.bias[k] = weights[-1].to(dynamics.bias.dtype)
        dynamics.log_B[k] = ((y - x @ weights).square().mean(0) + 1e-4).log().div(2).to(dynamics.log_B.dtype)
