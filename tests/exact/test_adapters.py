"""Critics joined and cut: what they add to a map is the mean of both, and the best of its rank."""

from __future__ import annotations

import torch

from adapters import cut, join, mean, shrink
from fabula.models.decoders.adapter import Adapter, AdapterConfig


def adapter(rank: int, seed: int) -> Adapter:
    config = AdapterConfig(base_sha256="x", rank=rank, scale=2.0, labels=("free",), tagger="none", critic=True)
    draw = torch.Generator().manual_seed(seed)
    shapes = {"blocks.0.linears.q.a": (rank, 7), "blocks.0.linears.q.b": (5, rank), "critic.weight": (1, 7)}
    return Adapter(config, {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()})


def added(a: Adapter) -> torch.Tensor:
    return a.tensors["blocks.0.linears.q.b"] @ a.tensors["blocks.0.linears.q.a"]


def test_joined_critics_add_the_mean() -> None:
    first, second = adapter(2, 0), adapter(3, 1)
    both = join(first, second)
    assert both.config.rank == 5
    assert torch.allclose(added(both), (added(first) + added(second)) / 2, atol=1e-5)
    assert torch.allclose(
        both.tensors["critic.weight"], (first.tensors["critic.weight"] + second.tensors["critic.weight"]) / 2
    )


def test_a_cut_is_the_best_of_its_rank() -> None:
    whole = adapter(4, 2)
    small, kept = cut(whole, 2)
    u, s, v = torch.linalg.svd(added(whole))
    assert torch.allclose(added(small), u[:, :2] * s[:2] @ v[:2], atol=1e-4)
    assert abs(kept - float((s[:2] ** 2).sum() / (s**2).sum())) < 1e-4
    same, kept = cut(whole, 4)
    assert torch.allclose(added(same), added(whole), atol=1e-4)
    assert abs(kept - 1) < 1e-4


def test_a_mean_lies_between_and_shrinking_scales_what_is_added() -> None:
    first, second = adapter(2, 3), adapter(2, 4)
    both = mean(first, second)
    assert all(torch.allclose(x, (first.tensors[n] + second.tensors[n]) / 2) for n, x in both.tensors.items())
    assert torch.allclose(added(shrink(first, 0.85)), 0.85 * added(first), atol=1e-6)
