"""The choice to end a sentence has a temperature of its own: `log_proposal` against the definition in docs/maths.md."""

import pytest
import torch

from fabula.sampling.decode import choose, log_proposal
from fabula.sampling.settings import DecodingConfig

ENDS = torch.tensor([False, True, False, True, False, False])


@pytest.mark.parametrize("at", [1.0, 0.5, 2.0])
def test_ends_are_as_likely_as_their_temperature_says(at: float) -> None:
    s = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).double()
    decoding = DecodingConfig(top_k=0, temperature=0.4, end_temperature=at)
    q = log_proposal(s, decoding, ENDS).exp()
    torch.testing.assert_close(q.sum(1), torch.ones(4).double())
    inside, outside = (s[:, mask].logsumexp(1) for mask in (ENDS, ~ENDS))
    torch.testing.assert_close(q[:, ENDS].sum(1), torch.sigmoid((inside - outside) / at))
    for mask in (ENDS, ~ENDS):
        torch.testing.assert_close(q[:, mask] / q[:, mask].sum(1, keepdim=True), (s[:, mask] / 0.4).softmax(1))


def test_without_it_words_have_one_temperature_and_barred_words_stay_barred() -> None:
    s = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    plain = DecodingConfig(top_k=0, temperature=0.7)
    torch.testing.assert_close(log_proposal(s, plain, ENDS), (s / 0.7).log_softmax(-1))
    s[:, ENDS] = float("-inf")
    ends = DecodingConfig(top_k=0, temperature=0.7, end_temperature=1.0)
    q = log_proposal(s, ends, ENDS).exp()
    assert q[:, ENDS].max() == 0
    torch.testing.assert_close(q[:, ~ENDS], (s[:, ~ENDS] / 0.7).softmax(-1))
    only = torch.full((1, 6), float("-inf"))
    only[0, 3] = 1.0
    word, log_q = choose(only, ends, torch.tensor([0.5]), ENDS)
    assert word.item() == 3
    assert log_q.item() == pytest.approx(0.0)
