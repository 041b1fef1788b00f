"""Factor 1, the scaffold: p(S_i | S_{i-1}), a Markov chain over switching states (Section 2.4).

With recurrent switches the next state also depends on where Z is, p(S_i | S_{i-1}, Z_{i-1}) (Linderman et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fabula.shapes import Bool, Float, Int, Integers, Latents, Mask, PerSentence, PerState, PerStory, Tags

Transitions = Float[Tensor, "batch links state state"] | None
"""log p(S_i | S_{i-1}) of every step of every row, from the second on; rows the previous state. None: all alike."""


def allowed_states(S: Int[Tensor, "*batch"], K: int) -> Bool[Tensor, "*batch state"]:
    """The states that tags leave open: the tag alone where it is known, all K where it is -1."""
    return (S.unsqueeze(-1) < 0) | (S.unsqueeze(-1) == torch.arange(K, device=S.device))


class MarkovChain(nn.Module):
    """p(S_1) and p(S_i | S_{i-1}); in a story model counted from the training split and fixed.

    Everything here sums over the chain exactly, by one recursion that is linear in N. `transitions` are those of
    every step where they are not all alike, as `RecurrentChain.transitions` gives them.
    """

    log_initial: Tensor
    log_transition: Tensor

    def __init__(self, p_initial: Float[Tensor, " state"], p_next: Float[Tensor, "state state"]) -> None:
        super().__init__()
        self.register_buffer("log_initial", p_initial.log())
        self.register_buffer("log_transition", p_next.log())

    @property
    def K(self) -> int:
        return self.log_initial.shape[0]

    def initial(self) -> Float[Tensor, " state"]:
        """log p(S_1)."""
        return self.log_initial.log_softmax(-1)

    def transition(self) -> Float[Tensor, "state state"]:
        """log p(S_i | S_{i-1}), rows the previous state."""
        return self.log_transition.log_softmax(-1)

    def transitions(self, Z: Latents) -> Transitions:
        """log p(S_i | S_{i-1}, Z_{i-1}) of every step; None where Z has no part in it."""
        return None

    def _into(self, N: int, transitions: Transitions) -> Sequence[Tensor]:
        """The log-probabilities of the step into each of 2 .. N."""
        return [self.transition()] * (N - 1) if transitions is None else transitions.unbind(1)

    def log_prob(self, S: Tags, present: Mask, transitions: Transitions = None) -> PerStory:
        """log p(S) of fully known chains."""
        return self.initial()[S[:, 0].clamp(min=0)] + self.log_prob_each(S, present, transitions).sum(-1)

    def log_prob_each(self, S: Tags, present: Mask, transitions: Transitions = None) -> Float[Tensor, "batch links"]:
        """log p(S_i | S_{i-1}) of every step from the second on; 0 where there is none."""
        S = S.clamp(min=0)
        if transitions is None:
            later = self.transition()[S[:, :-1], S[:, 1:]]
        else:
            from_previous = transitions.gather(2, S[:, :-1, None, None].expand(-1, -1, 1, self.K)).squeeze(2)
            later = from_previous.gather(2, S[:, 1:, None]).squeeze(2)
        return later * present[:, 1:]

    def forward_messages(self, log_evidence: PerState, present: Mask, transitions: Transitions = None) -> PerState:
        """log p(evidence_1..i, S_i) for every i; a step that is not there copies the message before it."""
        message = self.initial() + log_evidence[:, 0]
        messages = [message]
        for i, transition in enumerate(self._into(log_evidence.shape[1], transitions), 1):
            step = torch.logsumexp(message.unsqueeze(-1) + transition, dim=1) + log_evidence[:, i]
            message = torch.where(present[:, i : i + 1], step, message)
            messages.append(message)
        return torch.stack(messages, dim=1)

    def log_marginal(self, log_evidence: PerState, present: Mask, transitions: Transitions = None) -> PerStory:
        """log sum_S prod_i p(S_i | S_{i-1}) evidence_i(S_i)."""
        return torch.logsumexp(self.forward_messages(log_evidence, present, transitions)[:, -1], dim=-1)

    def posterior(self, log_evidence: PerState, present: Mask, transitions: Transitions = None) -> PerState:
        """p(S_i | all evidence) by forward-backward: backward messages are log p(evidence_i+1.. | S_i)."""
        into = self._into(log_evidence.shape[1], transitions)
        backward = torch.zeros_like(log_evidence[:, 0])
        backwards = [backward]
        for i in range(log_evidence.shape[1] - 1, 0, -1):
            step = torch.logsumexp(into[i - 1] + (log_evidence[:, i] + backward).unsqueeze(1), dim=-1)
            backward = torch.where(present[:, i : i + 1], step, backward)
            backwards.append(backward)
        forward = self.forward_messages(log_evidence, present, transitions)
        return (forward + torch.stack(backwards[::-1], dim=1)).softmax(-1)

    def sample(
        self, log_evidence: PerState, present: Mask, uniform: PerSentence, transitions: Transitions = None
    ) -> Tags:
        """S ~ p(S | evidence): messages forward, draws backward, exact; one uniform number per step."""
        forward = self.forward_messages(log_evidence, present, transitions)
        shared = self.transition()
        s = pick(forward[:, -1], uniform[:, -1])
        S = [s]
        for i in range(forward.shape[1] - 2, -1, -1):
            into = shared[:, s].T if transitions is None else transitions[:, i].mT[torch.arange(len(s)), s]
            # A sequence that ends at i, before others of the batch, has nothing to agree with.
            onward = torch.where(present[:, i + 1 : i + 2], into, 0.0)
            s = pick(forward[:, i] + onward, uniform[:, i])
            S.append(s)
        return torch.stack(S[::-1], dim=1)

    def viterbi(self, log_evidence: PerState, present: Mask, transitions: Transitions = None) -> Tags:
        """The likeliest S given the evidence; behind a sequence's end its last state is repeated."""
        message, choices = self.initial() + log_evidence[:, 0], []
        stay = torch.arange(self.K, device=message.device)
        for i, transition in enumerate(self._into(log_evidence.shape[1], transitions), 1):
            best, choice = (message.unsqueeze(-1) + transition).max(1)
            here = present[:, i : i + 1]
            message = torch.where(here, best + log_evidence[:, i], message)
            choices.append(torch.where(here, choice, stay))
        S = [message.argmax(-1)]
        for choice in reversed(choices):
            S.append(choice.gather(1, S[-1].unsqueeze(1)).squeeze(1))
        return torch.stack(S[::-1], 1)


class RecurrentChain(MarkovChain):
    """p(S_i = k | S_{i-1} = j, Z_{i-1} = z) ∝ p_next[j, k] exp(weight[k] · z)."""

    def __init__(self, p_initial: Tensor, p_next: Tensor, weight: Float[Tensor, "state latent"]) -> None:
        super().__init__(p_initial, p_next)
        self.weight = nn.Parameter(weight)

    def transitions(self, Z: Latents) -> Transitions:
        return (self.log_transition + (Z[:, :-1] @ self.weight.T).unsqueeze(-2)).log_softmax(-1)


def clamp(log_evidence: PerState, allowed: Bool[Tensor, "batch sent state"]) -> PerState:
    """Evidence that rules out every state that is not allowed."""
    return log_evidence.masked_fill(~allowed, float("-inf"))


def pick(log_weights: Float[Tensor, "batch choices"], uniform: PerStory) -> Integers:
    """One of the choices for each row, with probability in proportion to its weight."""
    cumulative = log_weights.softmax(-1).cumsum(-1)
    below = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    return below.clamp(max=log_weights.shape[-1] - 1)
