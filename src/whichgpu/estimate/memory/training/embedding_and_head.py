"""Embedding, output head and loss of a language model, written on a tape."""

from __future__ import annotations

from msgspec.structs import replace

from whichgpu.estimate.memory.training.operators import ElementWidths, OperatorWriter, QuantisedWeights
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock, TapeTensor
from whichgpu.workload.shapes import Transformer

# Families that cap logits with tanh, and families that do not cast logits to fp32 for the loss as causal models do.
SOFT_CAPPED = ("gemma2",)
OWN_WIDTH = ("bert", "roberta", "deberta-v2", "t5", "whisper", "distilbert", "electra", "albert")


def embedding_block(shape: Transformer, tokens: int, widths: ElementWidths) -> TapeBlock:
    """Return the block that sums token, position and type embeddings, with the family's norm and dropout."""
    tape = Tape()
    write = OperatorWriter(tape, tokens, widths)
    entry = tape.value(tokens, 8)  # token ids
    x = tape.op((), tokens * shape.hidden, widths.stream, kernel=True)
    for table in (shape.positions, shape.token_types):
        if table:
            other = tape.op((), tokens * shape.hidden, widths.stream, kernel=True)
            x = write.add(x, other)
    if shape.embedding_norm:
        x = write.layer_norm(x)
    x = write.dropout(x, shape.dropout)
    return TapeBlock(tuple(tape.nodes), entry, x)


def head_block(shape: Transformer, tokens: int, widths: ElementWidths, lora_rank: int = 0) -> TapeBlock:
    """Return final norm, output head and loss as one block whose output is the loss."""
    tape = Tape()
    write = OperatorWriter(tape, tokens, widths)
    entry = tape.value(tokens * shape.hidden, widths.stream)
    x = entry
    if shape.causal or shape.norm == "rms":
        own = OperatorWriter(tape, tokens, widths, lora_rank)
        x = own.rms_norm(x, shape.model_type.startswith("gemma")) if shape.norm == "rms" else own.layer_norm(x)
    if shape.lm_transform:
        x = write.layer_norm(write.keeps_input(write.linear(x, shape.hidden, bias=True)))
    logits = _logits(write, shape, x, lora_rank)
    if shape.model_type in OWN_WIDTH:  # Autocast's softmax reads 16 bit and writes fp32 in one kernel.
        shares = tape.op((logits,), logits.count, 4 if widths.mixed else logits.width, save_output=True)
        loss = tape.op((shares,), 1, 4)
        return TapeBlock(tuple(tape.nodes), entry, loss, hold=(logits,))
    if shape.model_type in SOFT_CAPPED:  # Logits are divided, passed through tanh and multiplied again.
        logits = write.scale(write.keeps_output(write.scale(logits)))
    upcast = write.cast(logits, 4)
    shares = tape.op((upcast,), upcast.count, 4, save_output=True)
    loss = tape.op((shares,), 1, 4)
    # The caller keeps the logits while the loss is computed.
    return TapeBlock(tuple(tape.nodes), entry, loss, hold=(logits,) if upcast is logits else (logits, upcast))


def chunked_head_block(
    shape: Transformer, tokens: int, widths: ElementWidths, lora_rank: int, chunks: int, quantised: QuantisedWeights | None
) -> TapeBlock:
    """Return final norm and frozen output head, run in chunks of the tokens, with their logits converted to fp32 as output."""
    tape = Tape()
    entry = tape.value(tokens * shape.hidden, widths.stream)
    write = OperatorWriter(tape, tokens, widths, lora_rank, quantised=quantised)
    x = write.rms_norm(entry, shape.model_type.startswith("gemma")) if shape.norm == "rms" else write.layer_norm(entry)
    x = write.cast(x, widths.compute)
    part = replace(write, tokens=tokens // chunks)
    logits = tuple(part.frozen(tape.op((x,), x.count // chunks, x.width, passes=True), shape.vocab) for _ in range(chunks))
    if shape.model_type in SOFT_CAPPED:
        logits = tuple(write.scale(write.keeps_output(write.scale(one))) for one in logits)
    wide = tape.op(logits, sum(one.count for one in logits), 4)
    return TapeBlock(tuple(tape.nodes), entry, wide)


def chunked_loss_block(shape: Transformer, tokens: int, chunks: int) -> TapeBlock:
    """Return the loss of fp32 logits, computed in chunks, as a block of its own.

    Each chunk saves its log-probabilities, which its backward frees as it writes the gradient of its logits.
    """
    tape = Tape()
    logits = tape.value(tokens * shape.vocab, 4)
    loss = tape.op((logits,), 1, 4, (logits,), extra=logits.size, backward_temporary=logits.size // chunks)
    return TapeBlock((replace(tape.nodes[0], in_place=True),), logits, loss)


def _logits(write: OperatorWriter, shape: Transformer, x: TapeTensor, lora_rank: int) -> TapeTensor:
    if not lora_rank:
        return write.linear(x, shape.vocab)
    x = write.cast(x, write.widths.compute)  # A frozen head saves nothing for backward.
    return write.tape.op((x,), write.tokens * shape.vocab, write.widths.compute, kernel=True)
