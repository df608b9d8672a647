"""Optimizer and loss of a plain PyTorch training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from whichgpu.base.errors import UsageError
from whichgpu.base.messages import msg

OPTIMIZERS = ("none", "sgd", "sgd-momentum", "adam", "adamw")


class TracedOptimizer:
    """Stand-in for a torch optimizer that allocates the same states and temporaries, fused or foreach, without data."""

    def __init__(self, torch: Any, name: str, fused: bool) -> None:
        if name not in OPTIMIZERS:
            raise UsageError("bad-value", msg("error.optimizer_not_traced", name=name), choices=OPTIMIZERS)
        self._torch, self.name, self.fused = torch, name, fused
        self.states: list[Any] = []

    def step(self, parameters: list[Any]) -> None:
        """Allocate the states and temporaries of one optimizer step over the parameters that have gradients."""
        trained = [p for p in parameters if p.grad is not None]
        if self.name == "sgd-momentum" and not self.states:
            self.states = [self._torch.clone(p.grad).detach() for p in trained]
        if self.name in ("adam", "adamw"):
            self._adam(trained)

    def _adam(self, trained: list[Any]) -> None:
        torch = self._torch
        if not self.states:
            for p in trained:
                self.states += [torch.zeros_like(p), torch.zeros_like(p)]
                if self.fused:
                    self.states.append(torch.zeros((), dtype=torch.float32, device=p.device))
        if not self.fused:
            # denom = sqrt(exp_avg_sq) is a temporary as large as the parameters (torch/optim/adam.py, _multi_tensor_adam).
            roots = [torch.empty_like(p) for p in trained]
            del roots


def default_loss(torch: Any, output: Any) -> Any:
    """Return the loss of an output: the model's own if it has one, else cross-entropy over classes, else a mean."""
    own = getattr(output, "loss", None)
    if own is not None:
        return own
    if isinstance(output, dict):
        output = tuple(output.values())
    if not isinstance(output, torch.Tensor):
        return sum(default_loss(torch, item) for item in output if isinstance(item, torch.Tensor))
    if output.dim() in (2, 4) and output.dtype.is_floating_point:
        labels = torch.zeros((output.shape[0], *output.shape[2:]), dtype=torch.int64, device=output.device)
        return torch.nn.functional.cross_entropy(output, labels)
    return output.float().mean()


Loss = Callable[[Any], Any]
