"""The tape and the step: what lives when, by hand-counted cases."""

from __future__ import annotations

import pytest

from tests.unit.shapes import LLAMA_3_8B as LLAMA
from whichgpu.estimate.memory.training.allocation_log import AllocationLog
from whichgpu.estimate.memory.training.allocator_replay import BlockRun, TrainingRun, replay_training
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS, OperatorWriter
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock, TapeTensor

KIB = 1024


def linear(tokens: int, features: int, out: int, precision: str = "fp32", rank: int = 0) -> TapeBlock:
    tape = Tape()
    entry = tape.value(tokens * features, WIDTHS[precision].stream)
    exit = OperatorWriter(tape, tokens, WIDTHS[precision], rank).linear(entry, out)
    return TapeBlock(tuple(tape.nodes), entry, exit)


def peak(ledger: AllocationLog) -> int:
    return ledger.replay().peak_allocated


def test_a_linear_layer_keeps_its_input_and_leaves_its_gradient() -> None:
    block = linear(256, 64, 32)
    assert (block.entry.size, block.exit.size) == (64 * KIB, 32 * KIB)
    assert block.saved_bytes == 64 * KIB
    assert block.weights == (8 * KIB,)
    ledger = AllocationLog()
    out, passed = block.forward(ledger, ledger.new(block.entry.size, "input"))
    assert peak(ledger) == 96 * KIB
    back, gradients = block.backward(ledger, passed, out)
    # the weight's gradient and the input's are made while input and output's gradient still live
    assert peak(ledger) == (64 + 32 + 8 + 64) * KIB
    assert back is not None
    assert len(gradients) == 1


def test_unsaved_tensors_are_freed_after_their_last_use() -> None:
    tape = Tape()
    write = OperatorWriter(tape, 1, WIDTHS["fp32"])
    entry = tape.value(256, 4)
    exit = write.scale(write.scale(write.scale(entry)))
    ledger = AllocationLog()
    TapeBlock(tuple(tape.nodes), entry, exit).forward(ledger, ledger.new(entry.size, "input"))
    assert peak(ledger) == 3 * KIB  # the current input, one being prefetched, one being freed


def test_a_tensor_used_twice_gets_its_two_gradients_added_in_a_new_one_while_the_first_is_shared() -> None:
    tape = Tape()
    write = OperatorWriter(tape, 1, WIDTHS["fp32"])
    entry = tape.value(256, 4)
    exit = write.add(entry, write.scale(entry))
    block = TapeBlock(tuple(tape.nodes), entry, exit)
    ledger = AllocationLog()
    out, passed = block.forward(ledger, ledger.new(entry.size, "input"))
    block.backward(ledger, passed, out)
    assert peak(ledger) == 3 * KIB


def test_autocast_saves_a_16_bit_copy_for_each_gemm_of_a_32_bit_input() -> None:
    tape = Tape()
    write = OperatorWriter(tape, 8, WIDTHS["amp-bf16"])
    entry = tape.value(8 * 16, 4)
    exit = write.multiply(write.linear(entry, 16), write.linear(entry, 16))
    copies = 2 * (8 * 16 * 2)
    products = 2 * (8 * 16 * 2)
    assert TapeBlock(tuple(tape.nodes), entry, exit).saved_bytes == copies + products


def test_an_adapter_leaves_only_its_own_gradients() -> None:
    assert linear(4, 64, 32, "bf16", rank=8).weights == (64 * 8 * 2, 8 * 32 * 2)


def test_the_peak_is_going_forward_for_long_batches_and_at_the_end_of_backward_for_short_ones() -> None:
    def training(tokens: int) -> TrainingRun:
        block = linear(tokens, 512, 512)
        return TrainingRun([BlockRun(block)] * 4, [size for _ in range(4) for size in block.weights])

    short, long = replay_training(training(1)), replay_training(training(100_000))
    assert short.breakdown["gradients"] == 4 * 512 * 512 * 4
    assert long.breakdown["activations"] > 100 * long.breakdown.get("gradients", 1)


def test_the_second_step_finds_the_optimizers_states() -> None:
    block = linear(8, 512, 512)
    replay = replay_training(TrainingRun([BlockRun(block)], block.weights, states=[*block.weights] * 2))
    assert replay.breakdown["optimizer"] == 2 * sum(block.weights)


def test_checkpointing_trades_saved_activations_for_one_recomputed_block() -> None:
    tape = Tape()
    write = OperatorWriter(tape, 1000, WIDTHS["fp32"])
    entry = tape.value(1000 * 64, 4)
    exit = write.linear(write.keeps_input(write.linear(entry, 512)), 64)
    block = TapeBlock(tuple(tape.nodes), entry, exit)
    plain = replay_training(TrainingRun([BlockRun(block)] * 12, ()))
    again = replay_training(TrainingRun([BlockRun(block, checkpointed=True)] * 12, ()))
    assert again.peak_allocated < plain.peak_allocated / 3
    assert again.breakdown["activations"] > 0


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_blocks_written_again_are_as_if_played_again(checkpointed: bool, precision: str) -> None:
    """A layer is recorded once and copied for the others; one created for every layer cannot be copied."""
    layers = [layer_block(LLAMA, LayerRun(512, 512, "flash"), WIDTHS[precision]) for _ in range(6)]
    casts = tuple(size // 2 for size in layers[0].weights) if precision.startswith("amp") else ()
    copied, played = (
        replay_training(TrainingRun([BlockRun(block, casts, checkpointed) for block in blocks], layers[0].weights))
        for blocks in (layers[:1] * 6, layers)
    )
    assert copied == played


def test_values_know_their_bytes() -> None:
    assert TapeTensor(1, 10, 2).size == 20
