"""Linear maps for inference: 8-bit weights on a CPU (fbgemm), float32 or bfloat16 elsewhere.

A CPU spends its time on weights, so fewer bytes are faster. Weights have one scale per output, activations one per row:

    y = (W_8 x_7) * scale_W * scale_x,   x_7 = round(63 x / max|x|),   W_8 = round(127 W / max|W|)

Activations have 7 bits, because AVX2 adds two 16-bit products at a time and must not overflow. A row's scale is its own
(torch's dynamic kernel has one scale per batch), so a story is scored alike in any company.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Float, Int8
from torch import Tensor
from torch.nn import functional as F

LEVELS = 63
"""Of activations, on either side of 0."""
ZERO = 64
"""Where 0 lies among the unsigned levels."""


product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default._op
"""The operator itself: asked through its Python wrapper, a step of the network takes a millisecond longer."""


class Quantised:
    """Weights of 8 bits in fbgemm's order; the product of integers is exact."""

    def __init__(self, levels: Int8[Tensor, "outputs inputs"], scale: Float[Tensor, " outputs"]) -> None:
        none = torch.zeros(len(scale), dtype=torch.int64)
        weight = torch._make_per_channel_quantized_tensor(levels, scale.double(), none, 0)
        self.packed = torch.ops.quantized.linear_prepack(weight, None)

    def __call__(self, x: Tensor) -> Tensor:
        size = x.abs().amax(-1, keepdim=True).clamp_(min=1e-12)
        return self._product(x / size).mul_(size)

    def normed(self, x: Tensor, epsilon: float) -> Tensor:
        """W rms_norm(x): a norm only scales a row, and so does quantising it, so both are done in one."""
        size = x.abs().amax(-1, keepdim=True).clamp_(min=1e-12)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        gain = size * norm.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        return self._product(x / size).mul_(gain)

    def _product(self, x: Tensor) -> Tensor:
        y: Tensor = product(x, 1 / LEVELS, ZERO, self.packed)
        return y


class Plain:
    """Weights as they are: float32, or bfloat16 on a GPU."""

    def __init__(self, weight: Float[Tensor, "outputs inputs"]) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def normed(self, x: Tensor, epsilon: float) -> Tensor:
        return F.linear(F.rms_norm(x, x.shape[-1:], eps=epsilon), self.weight)


class Adapted:
    """W x + b (a x): a map of another network, and what is added to it."""

    def __init__(self, inner: LinearMap, a: Float[Tensor, "rank inputs"], b: Float[Tensor, "outputs rank"]) -> None:
        self.inner, self.a, self.b = inner, a, b

    def __call__(self, x: Tensor) -> Tensor:
        return self.inner(x) + F.linear(F.linear(x, self.a), self.b)

    def normed(self, x: Tensor, epsilon: float) -> Tensor:
        normed = F.rms_norm(x, x.shape[-1:], eps=epsilon)
        return self.inner.normed(x, epsilon) + F.linear(F.linear(normed, self.a), self.b)


LinearMap = Quantised | Plain | Adapted
"""x -> W x."""


def quantise(
    weight: Float[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float[Tensor, " outputs"]]:
    """Levels from -127 to 127 and the scale of each output."""
    scale = weight.abs().amax(1).clamp(min=1e-12) / 127
    return (weight / scale[:, None]).round().to(torch.int8), scale


def available() -> bool:
    """Whether this build of torch has fbgemm's kernels (x86); elsewhere weights are kept in float32."""
    return "fbgemm" in torch.backends.quantized.supported_engines and hasattr(
        torch, "_make_per_channel_quantized_tensor"
    )


def linear_maps(weights: Mapping[str, Tensor], names: Sequence[str]) -> list[LinearMap]:
    """The maps of these names; quantised ones have their scales beside them, as `{name}.scale`.

    Two are packed at a time: packing is half of what a start does after torch is there, and needs no GIL.
    """

    def make(name: str) -> LinearMap:
        scale = weights.get(f"{name}.scale")
        return Plain(weights[name]) if scale is None else Quantised(weights[name], scale)

    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        # torch announces that quantised tensors will be removed; constraints.txt pins it
        warnings.simplefilter("ignore", UserWarning)
        return list(pool.map(make, names))
