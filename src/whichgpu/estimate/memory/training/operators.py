"""Operators of language models in PyTorch eager, written onto a tape with what each saves for backward.

The rules are autograd's (PyTorch's tools/autograd/derivatives.yaml) and autocast's (PyTorch documentation, Automatic Mixed
Precision): under autocast a GEMM casts its inputs to 16 bit at each call and its weights once a step; normalisation, loss and
`pow` run in fp32.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from whichgpu.estimate.memory.training.tape import Tape, TapeTensor
from whichgpu.workload.precisions import PRECISION_BY_NAME, TRAINING_PRECISIONS, Precision


class ElementWidths(msgspec.Struct, frozen=True):
    """Bytes of an element of parameters, of the residual stream and of GEMM operands."""

    parameter: int
    stream: int
    compute: int
    master: int = 0  # of the optimizer's own copy of the parameters; 0 if it updates the parameters themselves
    main_gradient: int = 0  # of gradients added up in a buffer of their own; 0 if each is a tensor like its parameter
    operand: float = 0.0  # of operands that are quantised for GEMMs in training; 0 if none are

    @property
    def mixed(self) -> bool:
        """Whether autocast is on: 32-bit parameters, 16-bit GEMMs."""
        return self.compute < self.parameter


class QuantisedWeights(msgspec.Struct, frozen=True):
    """How GEMMs with frozen 4-bit weights run: 16-bit copies made of a weight, and whether the graph keeps their inputs."""

    copies: int = 1
    keeps_inputs: bool = False


# Projections whose input is that of another one before them, so that one quantised copy serves both.
SHARED_INPUTS = ("k", "v", "up")


def training_widths(one: Precision) -> ElementWidths:
    """Return the element widths of training in a precision."""
    widths = ElementWidths(one.parameter_bytes, one.stream_bytes, one.compute_bytes)
    return replace(widths, master=one.master_bytes, operand=one.operand_bytes) if one.quantises_training else widths


def with_main_weights(widths: ElementWidths) -> ElementWidths:
    """Return the widths of training whose optimizer keeps fp32 weights, states and gradients beside 16-bit parameters."""
    return replace(widths, master=4, main_gradient=4) if widths.parameter == 2 else widths


WIDTHS = {name: training_widths(PRECISION_BY_NAME[name]) for name in TRAINING_PRECISIONS}


class OperatorWriter(msgspec.Struct, frozen=True):
    """Writes operators for `tokens` rows onto a tape."""

    tape: Tape
    tokens: int
    widths: ElementWidths
    lora_rank: int = 0  # above 0: base weights are frozen
    copies: int = 1  # number of equal experts that one linear layer on the tape represents
    targets: frozenset[str] = frozenset()  # projections with a LoRA adapter; empty: all
    lora_dropout: float = 0.0  # share of its input that each adapter drops
    quantised: QuantisedWeights | None = None  # of frozen weights in 4 bit (QLoRA)

    def cast(self, x: TapeTensor, width: int) -> TapeTensor:
        """Append a cast to elements of `width` bytes; it saves nothing, and its gradient is cast back."""
        return x if x.width == width else self.tape.op((x,), x.count, width)

    def linear(self, x: TapeTensor, out: int, bias: bool = False, role: str = "") -> TapeTensor:
        """Append x @ W, which saves x for the weight gradient. `role` is the projection's name: q, k, v, o, gate, up, down."""
        features = x.count // self.tokens
        x = self.cast(x, self.widths.compute)
        weights = self.copies * (features * out + (out if bias else 0))
        if self.lora_rank and self.targets and role not in self.targets:  # A frozen layer without an adapter saves nothing.
            return self.frozen(x, out)
        if self.lora_rank:
            return self._adapted(x, features, out)
        # Under autocast the gradient is computed in 16 bit and cast to the parameter's width.
        temporary = weights * self.widths.compute if self.widths.mixed else 0
        quantised = bool(role and self.widths.operand)  # The weight gradient then needs the quantised copy of x only.
        return self.tape.op(
            (x,),
            self.tokens * out,
            self.widths.compute,
            () if quantised else (x,),
            extra=int(x.count * self.widths.operand) if quantised and role not in SHARED_INPUTS else 0,
            parameter_gradient=weights * self.widths.parameter,
            backward_temporary=temporary,
            kernel=True,
        )

    def frozen(self, x: TapeTensor, out: int) -> TapeTensor:
        """Append x @ W of a frozen weight, which is dequantised for its GEMM, forward and backward, if it is stored in 4 bit."""
        width = self.widths.compute
        if self.quantised is None:
            return self.tape.op((x,), self.tokens * out, width, kernel=True)
        whole = self.quantised.copies * self.copies * (x.count // self.tokens) * out * width
        saved = (x,) if self.quantised.keeps_inputs else ()
        return self.tape.op((x,), self.tokens * out, width, saved, backward_temporary=whole, kernel=True, forward_temporary=whole)

    def _adapted(self, x: TapeTensor, features: int, out: int) -> TapeTensor:
        """Append a frozen linear layer plus a low-rank adapter (arXiv 2106.09685): base(x) + scale * B(A(x))."""
        width, rank = self.widths.compute, self.lora_rank
        base = self.frozen(x, out)
        gradients = (features * rank * self.widths.parameter, rank * out * self.widths.parameter)
        x = self.dropout(x, self.lora_dropout)  # The result is a copy of the adapter's own, saved with its mask.
        down = self.tape.op((x,), self.tokens * rank, width, (x,), parameter_gradient=gradients[0], kernel=True)
        up = self.tape.op((down,), self.tokens * out, width, (down,), parameter_gradient=gradients[1], kernel=True)
        scaled = self.tape.op((up,), up.count, width)
        return self.tape.op((base, scaled), base.count, width, passes=True)

    def rms_norm(self, x: TapeTensor, wide_weight: bool = False) -> TapeTensor:
        """Append RMS norm as separate operators: an fp32 copy squared, averaged, scaled, cast back, times the weight.

        With `wide_weight` (Gemma) the weight is applied in fp32, before the cast.
        """
        wide = self.cast(x, 4)
        squared = self.tape.op((wide,), x.count, 4, (wide,))
        scale = self.tape.op((squared,), self.tokens, 4, save_output=True)
        normed = self.tape.op((wide, scale), x.count, 4, (wide, scale))
        gradient = 0 if self.lora_rank else x.count // self.tokens * self.widths.parameter
        if wide_weight:
            saved = (normed,) if gradient else ()
            return self.cast(self.tape.op((normed,), x.count, 4, saved, parameter_gradient=gradient), x.width)
        narrow = self.cast(normed, x.width)
        saved = (narrow,) if gradient else ()
        return self.tape.op((narrow,), x.count, x.width, saved, parameter_gradient=gradient)

    def layer_norm(self, x: TapeTensor) -> TapeTensor:
        """Append a fused layer norm, which saves its input, a mean and a deviation per row; autocast runs it in fp32."""
        if self.widths.mixed:
            x = self.cast(x, 4)
        gradient = 0 if self.lora_rank else 2 * (x.count // self.tokens) * self.widths.parameter
        return self.tape.op((x,), x.count, x.width, (x,), extra=8 * self.tokens, parameter_gradient=gradient)

    def add(self, x: TapeTensor, y: TapeTensor) -> TapeTensor:
        """Append a residual sum, which saves nothing and passes its gradient to both inputs."""
        return self.tape.op((x, y), x.count, max(x.width, y.width), passes=True, kernel=True)

    def _sum(self, x: TapeTensor, y: TapeTensor) -> TapeTensor:
        return self.tape.op((x, y), x.count, max(x.width, y.width), passes=True)

    def scale(self, x: TapeTensor) -> TapeTensor:
        """Append a multiplication by a constant or an addition of one, which saves nothing."""
        return self.tape.op((x,), x.count, x.width)

    def multiply(self, x: TapeTensor, y: TapeTensor) -> TapeTensor:
        """Append an elementwise product, which saves both factors."""
        return self.tape.op((x, y), x.count, max(x.width, y.width), (x, y))

    def keeps_input(self, x: TapeTensor) -> TapeTensor:
        """Append an activation that saves its input, such as silu or gelu."""
        return self.tape.op((x,), x.count, x.width, (x,))

    def keeps_output(self, x: TapeTensor) -> TapeTensor:
        """Append an activation that saves its output: tanh, relu, sigmoid."""
        return self.tape.op((x,), x.count, x.width, save_output=True)

    def dropout(self, x: TapeTensor, share: float) -> TapeTensor:
        """Append dropout of a `share` of the elements, which saves a mask of one byte per element; nothing if it is 0."""
        return x if share <= 0 else self.tape.op((x,), x.count, x.width, extra=x.count)

    def gelu_tanh(self, x: TapeTensor) -> TapeTensor:
        """Append GELU's tanh approximation as separate operators; `pow` runs in fp32 under autocast."""
        base = self.cast(x, 4) if self.widths.mixed else x
        cubed = self.tape.op((base,), x.count, base.width, (base,))
        inner = self.scale(self._sum(x, self.scale(cubed)))
        return self.multiply(self.scale(x), self.scale(self.keeps_output(inner)))

    def rotary(self, x: TapeTensor) -> TapeTensor:
        """Append RoPE, x * cos + rotate(x) * sin; x is not saved, since cos and sin (in the stream's width) need no gradient."""
        width = max(x.width, self.widths.stream)
        cosine = self.tape.op((x,), x.count, width)
        rotated = self.tape.op((x,), x.count, x.width)
        sine = self.tape.op((rotated,), x.count, width)
        return self._sum(cosine, sine)

    def attention(
        self, q: TapeTensor, k: TapeTensor, v: TapeTensor, heads: int, out: int, kind: str, context: int, dropout: float = 0
    ) -> TapeTensor:
        """Append attention: fused, it saves q, k, v, its output and a log-sum-exp per row and head; eager, also the scores.

        Scores that are capped (Gemma 2) pass through a tanh, which saves them once more.
        """
        width = self.widths.compute
        q, k, v = (self.cast(part, width) for part in (q, k, v))
        if kind in ("eager", "capped"):
            scores = self.tape.op((q, k), self.tokens * heads * context, width, (q, k), kernel=True)
            scores = self.keeps_output(scores) if kind == "capped" else scores
            shares = self.tape.op((scores,), scores.count, 4, save_output=True)
            shares = self.dropout(self.cast(shares, width), dropout)
            return self.tape.op((shares, v), self.tokens * out, width, (shares, v), kernel=True)
        statistics = 4 * self.tokens * heads
        # The backward kernels accumulate the gradient of q in fp32.
        return self.tape.op(
            (q, k, v),
            self.tokens * out,
            width,
            (q, k, v),
            save_output=True,
            extra=statistics,
            backward_temporary=4 * q.count,
            kernel=True,
        )
