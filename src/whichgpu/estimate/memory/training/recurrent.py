"""Linear-attention and state-space layers in training, as flash-linear-attention and mamba-ssm run them."""

from __future__ import annotations

from whichgpu.estimate.memory.training.operators import OperatorWriter
from whichgpu.estimate.memory.training.tape import TapeTensor
from whichgpu.workload.shapes import RecurrentMixer

CHUNK_TOKENS = 64  # tokens of a chunk in flash-linear-attention and FlashInfer; Mamba-2's kernels take 64 to 256
EAGER_GATES = ("gated_delta",)  # kinds whose gated norm `transformers` runs as separate operators
DELTA_RULES = ("gated_delta", "kda")  # kinds whose state is corrected by what it holds already


def recurrent_mixer(write: OperatorWriter, mixer: RecurrentMixer, x: TapeTensor, hidden: int) -> TapeTensor:
    """Write a mixer: projections, convolution and recurrence, gated norm, output projection."""
    width, tokens = write.widths.compute, write.tokens
    delta = mixer.kind in DELTA_RULES  # The gate is projected apart there, and the norm saves its own copy of the result.
    projected = write.linear(x, mixer.conv_channels if delta else mixer.inward, role="mixer_in")
    gate = write.linear(x, mixer.inward - mixer.conv_channels, role="mixer_in") if delta else projected
    for rows, columns in mixer.inner:
        source = x if rows == hidden else write.tape.op((gate,), tokens * rows, width)
        write.linear(source, columns, role="mixer_in")
    mixed = write.tape.op(
        (projected,),
        tokens * mixer.outward,
        width,
        (projected,),
        save_output=not delta,
        extra=tokens * _saved_per_token(mixer, width),
        parameter_gradient=0 if write.lora_rank else mixer.other * write.widths.parameter,
        backward_temporary=tokens * _temporary_per_token(mixer, width),
        kernel=True,
    )
    return write.linear(_gated_norm(write, mixer, mixed, gate), hidden, role="mixer_out")


def _gated_norm(write: OperatorWriter, mixer: RecurrentMixer, mixed: TapeTensor, gate: TapeTensor) -> TapeTensor:
    """Write the norm of a mixer's output times its gate: separate operators with the gate in fp32, or one kernel."""
    if mixer.kind not in EAGER_GATES:
        return write.tape.op((mixed,), mixed.count, mixed.width, kernel=True)
    wide = write.tape.op((gate,), mixed.count, 4)
    return write.cast(write.multiply(write.rms_norm(mixed), write.keeps_input(wide)), mixed.width)


def _saved_per_token(mixer: RecurrentMixer, width: int) -> int:
    """Return the bytes per token that a mixer's kernels save for backward beside their input and output.

    The delta rule saves the convolution's result, normalised queries and keys for every head of values, values, the decay in
    fp32, and the inverse of each chunk's matrix of keys (`ChunkGatedDeltaRuleFunction`). Mamba-2's fused function computes all
    of this again (`mamba_split_conv1d_scan_combined`).
    """
    if mixer.kind in DELTA_RULES:
        decay = 4 * mixer.heads * (mixer.key_dim if mixer.kind == "kda" else 1)
        rows = mixer.heads * (2 * mixer.key_dim + mixer.value_dim + CHUNK_TOKENS)
        return (mixer.conv_channels + rows) * width + decay
    return 0 if mixer.kind == "mamba2" else mixer.conv_channels * width


def _temporary_per_token(mixer: RecurrentMixer, width: int) -> int:
    """Return the bytes per token in the backward pass: the state of every chunk and its gradient, and those of its inputs."""
    states = 2 * mixer.state * width // CHUNK_TOKENS
    return states + mixer.heads * (2 * mixer.key_dim + 2 * mixer.value_dim) * width
