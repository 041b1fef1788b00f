"""Work on tensors that can be ended from another thread: whoever waits for it may leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

OPERATIONS_PER_CHECK = 16
"""Operations on tensors between two checks: a check costs more than a small operation."""


class Interruptible(TorchFunctionMode):
    """Calls `check` at operations on tensors, whatever the model does; an exception that it raises ends the work."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self.check, self.operations = check, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        if self.operations % OPERATIONS_PER_CHECK == 0:
            self.check()
        return func(*args, **(kwargs or {}))
