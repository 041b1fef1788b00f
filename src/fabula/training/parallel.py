"""Training in several processes, as torchrun starts them: each takes some of a batch's parts, gradients are added up.

    torchrun --nproc-per-node 2 -m fabula train RECIPE.toml --data DIR --out RUN

Example p of a batch is in part p mod `parts`. Each part draws its random numbers by (seed, step, part), so the
parameters do not depend on how many processes share the parts, but for the order in which gradients are added. A run
may be resumed by another number of processes.

A step is several passes through a model's methods, for which torch's DistributedDataParallel has no hooks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from fabula.errors import UserError


@dataclass(frozen=True)
class Processes:
    """How many there are, and which one this is; alone, nothing is sent anywhere."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this one writes files and prints."""
        return self.rank == 0

    def parts(self, wanted: int) -> int:
        """Parts of a batch: as many as the recipe wants; if it wants 0, one for each process."""
        if wanted % self.count:
            message = f"train.parts is {wanted}, which {self.count} processes cannot share; use a multiple"
            raise UserError(message, field="parts")
        return wanted or self.count

    def share(self, parts: int) -> range:
        """The parts that this process works on."""
        return range(self.rank, parts, self.count)

    def add_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every parameter's gradient becomes the sum over all processes; where one has none it counts as 0."""
        if self.count == 1:
            return
        trained = [p for p in parameters if p.requires_grad]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained])
        any_gradient = torch.tensor([float(p.grad is not None) for p in trained], device=flat.device)
        distributed.all_reduce(flat)
        distributed.all_reduce(any_gradient)
        # A parameter without a gradient anywhere stays without: a 0 would let its weights decay.
        for p, gradient, exists in zip(trained, flat.split([p.numel() for p in trained]), any_gradient, strict=True):
            p.grad = gradient.view_as(p) if exists else None

    def total(self, figures: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            distributed.all_reduce(figures)
        return figures

    def largest(self, figure: Tensor) -> Tensor:
        if self.count > 1:
            distributed.all_reduce(figure, distributed.ReduceOp.MAX)
        return figure

    def any(self, condition: bool, device: torch.device) -> bool:
        """Whether it holds in any process: all of them then do the same."""
        return condition if self.count == 1 else bool(self.largest(torch.tensor(int(condition), device=device)))

    def from_first(self, tensors: Iterable[Tensor]) -> None:
        """The first process's values in all of them."""
        for tensor in tensors if self.count > 1 else ():
            distributed.broadcast(tensor.data, 0)

    def of_first(self, figure: float, device: torch.device) -> float:
        """The first process's figure."""
        shared = torch.tensor(figure, device=device, dtype=torch.float64)
        self.from_first([shared])
        return float(shared)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            distributed.barrier()


ALONE = Processes()


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[Processes, torch.device]]:
    """The processes that torchrun has started, connected, and the device of this one; alone where it has not.

    When one dies or fails torchrun ends the others, so none waits for ever.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield ALONE, device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size()), device
    finally:
        distributed.destroy_process_group()


def seed_part(seed: int, step: int, part: int) -> None:
    """The random numbers of one part of one step."""
    torch.manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + part * 0x2545F4914F6CDD1D) % 2**63)
