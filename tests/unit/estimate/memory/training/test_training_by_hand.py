"""Training steps of a few tensors by hand: bytes gathered by ZeRO, cast by autocast, held by checkpoints; and their ranges."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.base.units import MIB
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.quantisation import layer_matrices, split_weights
from whichgpu.estimate.memory.training.allocator_replay import BlockRun, TrainingRun, replay_training
from whichgpu.estimate.memory.training.operators import WIDTHS, OperatorWriter
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock
from whichgpu.estimate.memory.training.training_step import mlp_parts, training_memory
from whichgpu.estimate.memory.training.transformer import transformer_parts
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Dlrm, LatentAttention, Mlp, Transformer
from whichgpu.workload.workload import Parallel, Workload

CATALOG = Catalog()
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)


def linear(features: int = 1024, out: int = 1024, tokens: int = 1, precision: str = "fp32") -> TapeBlock:
    """A product with one weight of 4 MiB in fp32, and next to nothing else."""
    tape = Tape()
    entry = tape.value(tokens * features, WIDTHS[precision].stream)
    exit = OperatorWriter(tape, tokens, WIDTHS[precision]).linear(entry, out)
    return TapeBlock(tuple(tape.nodes), entry, exit)


def peak_mib(training: TrainingRun, label: str, pools: bool = False) -> float:
    """MiB at the fullest moment."""
    return round(replay_training(training, pools).breakdown.get(label, 0) / MIB, 1)


@pytest.mark.parametrize(("sizes", "peak"), [((100, 200, 300), 500), ((300, 200, 100), 500), ((300, 10, 200), 310), ((7,), 7)])
def test_zero_3_has_the_weights_of_two_neighbours_whole(sizes: tuple[int, ...], peak: int) -> None:
    stretches = [BlockRun(linear(16, 16), gathered=size * MIB) for size in sizes]
    assert peak_mib(TrainingRun(stretches, ()), "temporary") == pytest.approx(peak, abs=0.1)
    again = [replace(one, checkpointed=True) for one in stretches]
    assert peak_mib(TrainingRun(again, ()), "temporary") == pytest.approx(peak, abs=0.1)


def test_gradients_are_spread_as_soon_as_a_block_has_them() -> None:
    blocks = [BlockRun(linear())] * 4
    assert peak_mib(TrainingRun(blocks, ()), "gradients") == 16
    spread = TrainingRun(blocks, (), scattered=4)
    assert peak_mib(spread, "gradients") == 3 + 4 + 1  # three shares, the last block's whole, and its share
    earlier = TrainingRun(blocks, (), accumulated=[4 * MIB] * 4)
    assert peak_mib(earlier, "gradients") == 16 + 4  # one block's in addition to those of earlier accumulation steps
    assert peak_mib(replace(earlier, accumulated=[MIB] * 4, scattered=4), "gradients") == 4 + 4 + 1


def test_tables_have_their_gradients_last() -> None:
    blocks = [BlockRun(linear())] * 2
    assert peak_mib(TrainingRun(blocks, (), tables=[8 * MIB]), "gradients") == 16
    tied = TrainingRun(blocks, (), tables=[8 * MIB], tied=8 * MIB)
    assert (peak_mib(tied, "gradients"), peak_mib(tied, "temporary")) == (16, 8)  # the head's share of it is added
    assert peak_mib(TrainingRun(blocks, (), tables=[8 * MIB], scattered=4), "gradients") == 2 + 8 + 2


def test_optimizer_scratch_is_counted_with_all_gradients() -> None:
    run = TrainingRun([BlockRun(linear())] * 2, [4 * MIB] * 2, states=[4 * MIB] * 4, step_temporary=10 * MIB)
    assert [peak_mib(run, name) for name in ("weights", "optimizer", "gradients", "temporary")] == [8, 16, 8, 10]
    assert [peak_mib(run, name, pools=True) for name in ("weights", "optimizer", "gradients", "temporary")] == [8, 16, 8, 10]
    fixed = replace(run, adapters=[MIB], fixed={"activations": 3 * MIB, "workspace": 0})
    assert [peak_mib(fixed, name) for name in ("adapters", "activations", "workspace")] == [1, 3, 0]


def test_autocast_copies_live_until_their_block_s_backward() -> None:
    """Four blocks of a MiB a copy: with many tokens the peak is at the loss, with few at the end of the backward pass."""
    long, short = (BlockRun(linear(*sizes, "amp-bf16"), casts=(MIB,)) for sizes in ((64, 64, 8192), (1024, 1024, 1)))
    for one, copies in ((long, 4), (short, 1)):
        assert peak_mib(TrainingRun([one] * 4, ()), "cast_weights") == copies
        assert peak_mib(TrainingRun([replace(one, checkpointed=True)] * 4, ()), "cast_weights") == copies
        gathered = replace(one, checkpointed=True, gathered=MIB)  # casts of freed weights are not held
        assert peak_mib(TrainingRun([gathered] * 4, ()), "cast_weights") == 1


def test_checkpointed_block_saves_its_input() -> None:
    """4096 tokens of 64 numbers are a MiB; a block inside is sixteen times as wide."""
    tape = Tape()
    write = OperatorWriter(tape, 4096, WIDTHS["fp32"])
    entry = tape.value(4096 * 64, 4)
    exit = write.linear(write.keeps_input(write.linear(entry, 1024)), 64)
    block = TapeBlock(tuple(tape.nodes), entry, exit)
    plain, again = (
        replay_training(TrainingRun([BlockRun(block, checkpointed=flag)] * 8, ()), pools=False).peak_allocated / MIB
        for flag in (False, True)
    )
    # fullest where the last block's second product has its gradients: of what came out, of what went in, of its weight
    here = 1 + 16 + 0.25
    assert plain == pytest.approx(7 + 8 * 32 + here, abs=0.01)
    assert again == pytest.approx(7 + 32 + here, abs=0.01)  # the inputs of seven, and one block's own


def sized(units: tuple[int, ...], batch: int, precision: str = "fp32") -> dict[str, int]:
    return mlp_parts(Workload("train", "net", precision=precision, batch=batch, optimizer="sgd"), Mlp("net", units))[0]


def test_a_perceptron_s_loss_by_hand() -> None:
    """Of 1024 samples with 4096 classes: when the loss goes back there are shares, their gradient and the logits'."""
    parts = sized((64, 64, 4096), 1024)
    assert (parts["activations"], parts["temporary"]) == (1024 * 4 * (64 + 64 + 4096), 1024 * 4 * 2 * 4096)
    narrow = sized((64, 64, 4096), 1024, "bf16")  # the loss is in fp32
    assert (narrow["activations"], narrow["temporary"]) == (1024 * (2 * (64 + 64) + 4 * 4096), 1024 * 4 * 2 * 4096)


def test_relus_lie_between_layers_only() -> None:
    """Backward of a wide middle: its output is saved once, with its gradient and that before the ReLU."""
    parts = sized((64, 8192, 64), 1024)
    assert parts["activations"] + parts["temporary"] == pytest.approx(1024 * 4 * (64 + 3 * 8192), rel=0.01)


def ends(shape: Any, **fields: Any) -> tuple[float, ...]:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 2, "seq_in": 64, "optimizer": "adamw", "engine": "pytorch"}
    estimate = training_memory(Workload("train", "tiny", **(plain | fields)), shape, None)
    return tuple(round(end / one.value, 4) for one in (estimate.allocated, estimate.device) for end in (one.low, one.high))


SURE, UNSURE = (0.9925, 1.0075, 0.965, 1.035), (0.94, 1.13, 0.92, 1.14)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt2", "bert", "roberta", "opt"])
def test_families_that_were_measured_are_surer(family: str) -> None:
    assert ends(replace(TINY, model_type=family)) == SURE


@pytest.mark.parametrize(
    "fields",
    [{"optimizer": "adafactor"}, {"optimizer_fused": False}, {"accumulation": 2, "batch": 4}, {"attention": "eager"},
     {"checkpointing": "selective"}, {"lora_rank": 4, "qlora": True}, {"parallel": Parallel(dp=2), "batch": 4}],
    ids=str,
)  # fmt: skip
def test_unmeasured_configurations_have_the_wide_range(fields: dict[str, Any]) -> None:
    assert ends(TINY, **fields) == UNSURE


def test_ranges_of_other_shapes() -> None:
    assert ends(replace(TINY, model_type="mamba")) == UNSURE
    assert ends(TINY, checkpointing="full") == SURE
    assert ends(TINY, optimizer="sgd-momentum") == SURE
    assert ends(Mlp("net", (64, 64, 8))) == SURE
    with pytest.raises(TypeError):
        training_memory(Workload("train", "d"), Dlrm("d", 8, (100,), (13, 8), (16, 1)), None)


def parts(shape: Transformer = TINY, **fields: Any) -> dict[str, int]:
    plain: dict[str, Any] = {"precision": "bf16", "batch": 64, "seq_in": 64, "optimizer": "adamw", "engine": "pytorch"}
    return transformer_parts(Workload("train", "tiny", **(plain | fields)), shape)[0]


def test_sequence_parallelism_shards_saved_norm_inputs() -> None:
    """Apart from attention and the MLP, a layer saves 1032 bytes per token (two norms with inputs and outputs)."""
    deep = replace(TINY, layers=40)
    plain, cut = (parts(deep, parallel=Parallel(tp=2, sp=sp)) for sp in (False, True))
    assert plain["activations"] - cut["activations"] == pytest.approx(1032 * 64 * 64 * 40 / 2, rel=0.03)
    assert {name: size for name, size in plain.items() if name != "activations"} == {
        name: size for name, size in cut.items() if name != "activations"
    }
    assert parts(deep, parallel=Parallel(sp=True)) == parts(deep)


WIDE = replace(TINY, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn=4096, vocab=1000)


def test_quantised_weights_by_hand() -> None:
    """Matrices in 4 bits and their scales; table, head and norms in 16 bits; one matrix dequantised at a time.

    The peak is the backward of a gate projection: beside its matrix, one token's gradients of its output, of the residual stream
    and of its input, once as its own and once as the sum of the others'.
    """
    sizes_by_part = parts(WIDE, lora_rank=4, qlora=True, batch=1, seq_in=1)
    linear_ = 4 * (4 * 1024 * 1024 + 3 * 1024 * 4096)
    other = 2 * (2 * 1000 * 1024 + (2 * 4 + 1) * 1024)
    assert sizes_by_part["weights"] == pytest.approx(linear_ * (4 + 8 / 64 + 32 / (64 * 256)) / 8 + other, rel=0.001)
    assert sizes_by_part["temporary"] == 1024 * 4096 * 2 + 2 * (4096 + 1024 + 2 * 1024)
    assert parts(WIDE, lora_rank=4, batch=1)["weights"] == pytest.approx(2 * linear_ + other, rel=0.001)


def test_stages_wait_with_micro_batches_in_flight() -> None:
    """The first of two stages holds the activations of two micro-batches, of all four layers two."""
    deep = replace(TINY, vocab=8)
    alone = parts(replace(deep, layers=2), micro_batch=64, accumulation=4, batch=256)
    staged = parts(deep, micro_batch=64, accumulation=4, batch=256, parallel=Parallel(pp=2))
    assert staged["activations"] == pytest.approx(2 * alone["activations"], rel=0.1)
    assert staged["weights"] == pytest.approx(alone["weights"], rel=0.05)


def test_the_last_stage_has_the_loss() -> None:
    """100,000 words of 256 tokens: shares of fp32, whichever stage holds most of the layers."""
    wordy = replace(TINY, vocab=100_000)
    staged = parts(wordy, batch=4, parallel=Parallel(pp=2))
    assert staged["activations"] > 256 * 100_000 * 4
    assert staged["weights"] == pytest.approx(2 * 100_000 * 64, rel=0.02)  # the head alone, and two layers


def families() -> dict[str, Transformer]:
    """A decoder of each family there is."""
    shapes = [find_model(one.id, CATALOG) for one in CATALOG.models]
    return {shape.model_type: shape for shape in shapes if isinstance(shape, Transformer) and not shape.encoder_layers}


def test_every_matrix_of_a_decoder_has_a_role() -> None:
    """The matrices listed for quantisation add up to the model's weights."""
    for name, shape in families().items():
        weights = sum(one.weights for one in layer_matrices(shape) if one.role != "router")
        assert weights == count_parameters(shape).linear, name
        assert split_weights(shape, "bf16").total == 2 * count_parameters(shape).total, name


def test_matrices_of_latents() -> None:
    """Rank 24 for queries, 16 for keys and values, with 4 rotary dimensions; heads of 8 + 4, values of 6."""
    shape = replace(TINY, layers=1, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    matrices = [(one.role, one.weights, one.row, one.count) for one in layer_matrices(shape)][:4]
    assert matrices == [
        ("latent_down", 64 * (24 + 16 + 4), 64, 2), ("latent_up", 24 * 8 * 12, 24, 1), ("latent_up", 16 * 8 * 14, 16, 1),
        ("attn_output", 64 * 8 * 6, 48, 1),
    ]  # fmt: skip
    direct = replace(shape, mla=LatentAttention(16, 0, 8, 4, 6))
    assert [(one.weights, one.row) for one in layer_matrices(direct)][:2] == [(64 * 20, 64), (64 * 96, 64)]
