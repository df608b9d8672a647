"""The operators of language models as PyTorch runs them eagerly, written onto a tape: what each keeps for backward.

Rules are those of autograd's own formulas (PyTorch's tools/autograd/derivatives.yaml) and of autocast's lists
(PyTorch documentation, Automatic Mixed Precision): under autocast a matrix product casts its inputs to 16 bit each time it
is called, weights once a step; normalisation, loss and `pow` run in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

from whichgpu.estimate.memory.training.tape import Tape, TapeTensor
from whichgpu.workload.precisions import PRECISION_BY_NAME


@dataclass(frozen=True, slots=True)
class ElementWidths:
    """Bytes of an element by role: parameters, the residual stream, matrix products."""

    parameter: int
    stream: int
    compute: int

    @property
    def mixed(self) -> bool:
        """Whether autocast is on: 32-bit parameters, 16-bit products."""
        return self.compute < self.parameter


WIDTHS = {
    name: ElementWidths(one.parameter_bytes, one.stream_bytes, one.compute_bytes)
    for name, one in PRECISION_BY_NAME.items()
    if one.is_trained
}


@dataclass(frozen=True, slots=True)
class OperatorWriter:
    """Writes operators for `tokens` rows onto a tape."""

    tape: Tape
    tokens: int
    widths: ElementWidths
    lora_rank: int = 0  # above 0: base weights are frozen and every linear layer has an adapter
    copies: int = 1  # weights a linear layer stands for: the experts of a mixture
    targets: frozenset[str] = frozenset()  # with adapters: the projections that have one; empty: all

    def cast(self, x: TapeTensor, width: int) -> TapeTensor:
        """A copy in another width; nothing is kept for backward, whose gradient is a copy again."""
        return x if x.width == width else self.tape.op((x,), x.count, width)

    def linear(self, x: TapeTensor, out: int, bias: bool = False, role: str = "") -> TapeTensor:
        """x @ W: keeps its input for the weight's gradient. `role` is the projection's name: q, k, v, o, gate, up, down."""
        features = x.count // self.tokens
        x = self.cast(x, self.widths.compute)
        weights = self.copies * (features * out + (out if bias else 0))
        if self.lora_rank and self.targets and role not in self.targets:  # frozen, with no adapter: keeps nothing
            return self.tape.op((x,), self.tokens * out, self.widths.compute)
        if self.lora_rank:
            return self._adapted(x, features, out)
        # under autocast the gradient comes in 16 bit and is cast to the parameter's width
        temporary = weights * self.widths.compute if self.widths.mixed else 0
        return self.tape.op(
            (x,),
            self.tokens * out,
            self.widths.compute,
            (x,),
            parameter_gradient=weights * self.widths.parameter,
            backward_temporary=temporary,
        )

    def _adapted(self, x: TapeTensor, features: int, out: int) -> TapeTensor:
        """A frozen linear layer plus a low-rank adapter (arXiv 2106.09685): base(x) + scale * B(A(x))."""
        width, rank = self.widths.compute, self.lora_rank
        base = self.tape.op((x,), self.tokens * out, width)
        down = self.tape.op((x,), self.tokens * rank, width, (x,), parameter_gradient=features * rank * self.widths.parameter)
        up = self.tape.op((down,), self.tokens * out, width, (down,), parameter_gradient=rank * out * self.widths.parameter)
        scaled = self.tape.op((up,), up.count, width)
        return self.tape.op((base, scaled), base.count, width, passes=True)

    def rms_norm(self, x: TapeTensor, wide_weight: bool = False) -> TapeTensor:
        """Written out in torch operators: an fp32 copy squared, averaged, scaled, cast back, times the weight.

        With `wide_weight` (Gemma) the weight is applied in fp32 and the cast comes last.
        """
        wide = self.cast(x, 4)
        squared = self.tape.op((wide,), x.count, 4, (wide,))
        scale = self.tape.op((squared,), self.tokens, 4, save_output=True)
        normed = self.tape.op((wide, scale), x.count, 4, (wide, scale))
        gradient = 0 if self.lora_rank else x.count // self.tokens * self.widths.parameter
        if wide_weight:
            return self.cast(self.tape.op((normed,), x.count, 4, (normed,), parameter_gradient=gradient), x.width)
        narrow = self.cast(normed, x.width)
        kept = (narrow,) if gradient else ()
        return self.tape.op((narrow,), x.count, x.width, kept, parameter_gradient=gradient)

    def layer_norm(self, x: TapeTensor) -> TapeTensor:
        """One fused operator: keeps its input, a mean and a deviation a row. Autocast runs it in fp32."""
        if self.widths.mixed:
            x = self.cast(x, 4)
        gradient = 0 if self.lora_rank else 2 * (x.count // self.tokens) * self.widths.parameter
        return self.tape.op((x,), x.count, x.width, (x,), extra=8 * self.tokens, parameter_gradient=gradient)

    def add(self, x: TapeTensor, y: TapeTensor) -> TapeTensor:
        """A sum keeps nothing; its gradient goes to both."""
        return self.tape.op((x, y), x.count, max(x.width, y.width), passes=True)

    def scale(self, x: TapeTensor) -> TapeTensor:
        """Times or plus a constant: keeps nothing."""
        return self.tape.op((x,), x.count, x.width)

    def multiply(self, x: TapeTensor, y: TapeTensor) -> TapeTensor:
        """A product keeps both factors."""
        return self.tape.op((x, y), x.count, max(x.width, y.width), (x, y))

    def keeps_input(self, x: TapeTensor) -> TapeTensor:
        """An activation such as silu, gelu or relu's like: keeps what went in."""
        return self.tape.op((x,), x.count, x.width, (x,))

    def keeps_output(self, x: TapeTensor) -> TapeTensor:
        """tanh, relu, sigmoid: keeps what came out."""
        return self.tape.op((x,), x.count, x.width, save_output=True)

    def dropout(self, x: TapeTensor, share: float) -> TapeTensor:
        """Keeps a mask of one byte an element."""
        return x if share <= 0 else self.tape.op((x,), x.count, x.width, extra=x.count)

    def gelu_tanh(self, x: TapeTensor) -> TapeTensor:
        """The tanh approximation written out in torch operators; `pow` forces fp32 under autocast."""
        base = self.cast(x, 4) if self.widths.mixed else x
        cubed = self.tape.op((base,), x.count, base.width, (base,))
        inner = self.scale(self.add(x, self.scale(cubed)))
        bent = self.keeps_output(inner)
        return self.multiply(self.scale(x), self.scale(bent))

    def rotary(self, x: TapeTensor) -> TapeTensor:
        """x * cos + rotate(x) * sin. cos and sin need no gradient, so x is not kept; they have the stream's width."""
        width = max(x.width, self.widths.stream)
        straight = self.tape.op((x,), x.count, width)
        turned = self.tape.op((x,), x.count, x.width)
        turned = self.tape.op((turned,), x.count, width)
        return self.add(straight, turned)

    def attention(
        self, q: TapeTensor, k: TapeTensor, v: TapeTensor, heads: int, out: int, kind: str, context: int, dropout: float = 0
    ) -> TapeTensor:
        """Fused attention keeps q, k, v, its output and a log-sum-exp a row and head; eager keeps the scores too."""
        width = self.widths.compute
        q, k, v = (self.cast(part, width) for part in (q, k, v))
        if kind == "eager":
            scores = self.tape.op((q, k), self.tokens * heads * context, width, (q, k))
            shares = self.tape.op((scores,), scores.count, 4, save_output=True)
            shares = self.dropout(self.cast(shares, width), dropout)
            return self.tape.op((shares, v), self.tokens * out, width, (shares, v))
        statistics = 4 * self.tokens * heads
        # the backward kernels accumulate dq in fp32
        return self.tape.op(
            (q, k, v), self.tokens * out, width, (q, k, v), save_output=True, extra=statistics, backward_temporary=4 * q.count
        )
