"""Factor 1, the narrative scaffold: p(S_i | S_{i-1}), a Markov chain over switching states (Section 2.4)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fabula.corpus.states import UNKNOWN
from fabula.shapes import Integers, Mask, PerSentence, PerState, PerStory, Tags


def allowed_states(S: Int[Tensor, "*batch"], K: int) -> Bool[Tensor, "*batch state"]:
    """The states that tags leave open: the tag alone where it is known, all K where it is -1."""
    return (S.unsqueeze(-1) == UNKNOWN) | (S.unsqueeze(-1) == torch.arange(K, device=S.device))


class Scaffold(nn.Module):
    """p(S_1) and p(S_i | S_{i-1}), counted from the training split and fixed.

    Everything here sums over the chain exactly, by one recursion that is linear in N.
    """

    log_initial: Tensor
    log_transition: Tensor

    def __init__(self, p_initial: Float[Tensor, " state"], p_next: Float[Tensor, "state state"]) -> None:
        super().__init__()
        self.register_buffer("log_initial", p_initial.log().float())
        self.register_buffer("log_transition", p_next.log().float())

    @property
    def K(self) -> int:
        return self.log_initial.shape[0]

    def initial(self) -> Float[Tensor, " state"]:
        """log p(S_1)."""
        return self.log_initial.log_softmax(-1)

    def transition(self) -> Float[Tensor, "state state"]:
        """log p(S_i | S_{i-1}), rows the previous state."""
        return self.log_transition.log_softmax(-1)

    def log_prob(self, S: Tags, present: Mask) -> PerStory:
        """log p(S) of fully known chains."""
        S = S.clamp(min=0)
        first = self.initial()[S[:, 0]]
        later = self.transition()[S[:, :-1], S[:, 1:]]
        return first + (later * present[:, 1:]).sum(-1)

    def forward_messages(self, log_evidence: PerState, present: Mask) -> PerState:
        """log p(evidence_1..i, S_i) for every i; a sentence that is not there copies the message before it."""
        message = self.initial() + log_evidence[:, 0]
        messages = [message]
        transition = self.transition()
        for i in range(1, log_evidence.shape[1]):
            step = torch.logsumexp(message.unsqueeze(-1) + transition, dim=1) + log_evidence[:, i]
            message = torch.where(present[:, i : i + 1], step, message)
            messages.append(message)
        return torch.stack(messages, dim=1)

    def log_marginal(self, log_evidence: PerState, present: Mask) -> PerStory:
        """log sum_S prod_i p(S_i | S_{i-1}) evidence_i(S_i)."""
        return torch.logsumexp(self.forward_messages(log_evidence, present)[:, -1], dim=-1)

    def posterior(self, log_evidence: PerState, present: Mask) -> PerState:
        """p(S_i | all evidence) by forward-backward."""
        forward = self.forward_messages(log_evidence, present)
        return (forward + self.backward_messages(log_evidence, present)).softmax(-1)

    def backward_messages(self, log_evidence: PerState, present: Mask) -> PerState:
        """log p(evidence_i+1.. | S_i) for every i."""
        transition = self.transition()
        backward = torch.zeros_like(log_evidence[:, 0])
        backwards = [backward]
        for i in range(log_evidence.shape[1] - 1, 0, -1):
            step = torch.logsumexp(transition + (log_evidence[:, i] + backward).unsqueeze(1), dim=-1)
            backward = torch.where(present[:, i : i + 1], step, backward)
            backwards.append(backward)
        return torch.stack(backwards[::-1], dim=1)

    def sample(self, log_evidence: PerState, present: Mask, uniform: PerSentence) -> Tags:
        """S ~ p(S | evidence): messages forward, draws backward, exact; one uniform number per sentence."""
        forward = self.forward_messages(log_evidence, present)
        transition = self.transition()
        s = pick(forward[:, -1], uniform[:, -1])
        S = [s]
        for i in range(forward.shape[1] - 2, -1, -1):
            # A story that ends at i, before others of the batch, has nothing to agree with.
            onward = torch.where(present[:, i + 1 : i + 2], transition[:, s].T, 0.0)
            s = pick(forward[:, i] + onward, uniform[:, i])
            S.append(s)
        return torch.stack(S[::-1], dim=1)


def clamp(log_evidence: PerState, allowed: Bool[Tensor, "batch sent state"]) -> PerState:
    """Evidence that rules out every state that is not allowed."""
    return log_evidence.masked_fill(~allowed, float("-inf"))


def pick(log_weights: Float[Tensor, "batch choices"], uniform: PerStory) -> Integers:
    """One of the choices for each row, with probability in proportion to its weight."""
    cumulative = log_weights.softmax(-1).cumsum(-1)
    below = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    return below.clamp(max=log_weights.shape[-1] - 1)
