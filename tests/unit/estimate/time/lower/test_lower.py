"""The operators of language models and perceptrons: what a framework runs, counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.lower import lower
from whichgpu.estimate.time.lower.eager.kernels import KernelWriter
from whichgpu.estimate.time.lower.eager.layers import LayerPass, eager_layer
from whichgpu.estimate.time.lower.numerics import numerics
from whichgpu.estimate.time.lower.routing import distinct_experts, touched_experts
from whichgpu.estimate.time.operators import CLASS_BY_KIND, Op
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Dlrm, Experts, Mlp, Transformer
from whichgpu.workload.workload import Workload

CATALOG = Catalog()


def shape_of(name: str) -> Transformer:
    shape = find_model(name, CATALOG)
    assert isinstance(shape, Transformer)
    return shape


def ops_of(name: str, task: str, **fields: object) -> tuple[Op, ...]:
    shape = find_model(name, CATALOG)
    return lower(fill_defaults(Workload(task, name, **fields), shape), shape).ops  # type: ignore[arg-type]


def total(ops: tuple[Op, ...] | list[Op], what: str, *kinds: str, phase: str | None = None) -> float:
    chosen = [op for op in ops if (not kinds or op.kind in kinds) and phase in (None, op.phase)]
    return float(sum(getattr(op, what) * op.count for op in chosen))


def weight_flops(shape: Transformer, tokens: float) -> float:
    """2 FLOPs a token and weight of the layers' matrices and the output head."""
    return 2 * tokens * (count_parameters(shape).linear + shape.vocab * shape.hidden)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen2.5-0.5b", "mistral-7b", "gpt2", "opt-1.3b", "pythia-1.4b", "phi-2"])
def test_training_takes_six_flops_a_token_and_weight(name: str) -> None:
    ops = ops_of(name, "train", precision="bf16", batch=2, seq_in=512)
    assert total(ops, "flops", "gemm") == pytest.approx(3 * weight_flops(shape_of(name), 1024), rel=0.01)


@pytest.mark.parametrize("precision", ["bf16", "amp-bf16", "tf32", "fp32"])
def test_backward_gemms_are_twice_the_forward_ones(precision: str) -> None:
    ops = ops_of("llama-3.2-1b", "train", precision=precision, batch=2, seq_in=512)
    forward, backward = (total(ops, "flops", "gemm", phase=phase) for phase in ("forward", "backward"))
    assert backward == pytest.approx(2 * forward)


def test_checkpointing_runs_the_layers_forward_again() -> None:
    plain, again = (
        ops_of("llama-3.2-1b", "train", precision="bf16", batch=2, seq_in=512, checkpointing=kind) for kind in ("none", "full")
    )
    shape = shape_of("llama-3.2-1b")
    more = total(again, "flops", "gemm") - total(plain, "flops", "gemm")
    last = shape.layers * shape.ffn * shape.hidden  # operators after the last tensor saved for backward are not recomputed
    assert more == pytest.approx(2 * 1024 * (count_parameters(shape).linear - last), rel=0.01)
    assert total(again, "flops", "attention") == pytest.approx(2 * total(plain, "flops", "attention"))


def test_adapters_leave_the_base_without_weight_gradients() -> None:
    shape = shape_of("llama-3.1-8b")
    ops = ops_of("llama-3.1-8b", "finetune", precision="bf16", batch=1, seq_in=1024, lora_rank=16)
    large = [op for op in ops if op.role == "wgrad" and min(op.sizes["m"], op.sizes["n"]) > 16]
    assert not large
    step = next(op for op in ops if op.kind == "optimizer")
    assert step.sizes["elements"] == 41_943_040  # as PEFT counts rank 16 on all seven projections
    base = total(ops, "flops", "gemm")
    assert 2 * weight_flops(shape, 1024) < base < 2.1 * weight_flops(shape, 1024)


def test_quantised_base_weights_are_dequantised_for_every_gemm() -> None:
    plain, packed = (
        ops_of("llama-3.1-8b", "finetune", precision="bf16", batch=1, seq_in=1024, lora_rank=16, qlora=qlora)
        for qlora in (False, True)
    )
    more = total(packed, "write", "copy") - total(plain, "write", "copy")
    assert more == pytest.approx(2 * 2 * count_parameters(shape_of("llama-3.1-8b")).linear, rel=0.01)


# Measured on an H200 with PyTorch 2.11 and transformers 5.17 (truth-h200): bytes of elementwise kernels for each token, layer and
# hidden unit, forward and backward; kernels a layer. Weights' casts are counted apart.
MEASURED = {
    ("llama-3.2-1b", "bf16"): ((139, 151), (314, 340), 40, 72),
    ("llama-3.1-8b", "bf16"): ((139, 151), (314, 340), 40, 72),
    ("llama-3.2-1b", "amp-bf16"): ((193, 193), (445, 445), 50, 88),
    ("gpt2", "bf16"): ((174, 174), (289, 289), 19, 31),
    ("gpt2", "amp-bf16"): ((363, 363), (588, 588), 32, 48),
    ("bert-base", "bf16"): ((47, 47), (92, 92), 15, 29),
    ("bert-base", "amp-bf16"): ((89, 89), (167, 167), 31, 47),
}


@pytest.mark.parametrize(("name", "precision"), MEASURED)
def test_a_layer_moves_the_bytes_that_were_measured(name: str, precision: str) -> None:
    shape, rows = shape_of(name), 1 << 20  # enough that weights are negligible
    write = KernelWriter(numerics(precision))
    eager_layer(write, shape, LayerPass(rows / 1024, 1024.0, causal=shape.causal))
    measured = MEASURED[name, precision]
    for phase, (low, high), kernels in zip(("forward", "backward"), measured[:2], measured[2:], strict=True):
        mine = [op for op in write.ops if op.phase == phase]
        moved = sum(float((op.read + op.write) * op.count) for op in mine if CLASS_BY_KIND[op.kind] == "memory")
        assert 0.93 * low < moved / rows / shape.hidden < 1.08 * high
        assert sum(float(op.count) for op in mine) == pytest.approx(kernels, rel=0.15)


def test_loss_is_over_the_vocabulary_in_fp32() -> None:
    shape = shape_of("llama-3.2-1b")
    ops = ops_of("llama-3.2-1b", "train", precision="bf16", batch=1, seq_in=1024)
    widened = [op for op in ops if op.kind == "copy" and op.sizes["elements"] == 1024 * shape.vocab]
    assert {(op.phase, op.write / op.sizes["elements"]) for op in widened} == {("forward", 4), ("backward", 2)}
    assert total(ops, "write", "softmax") == 4 * 1024 * shape.vocab


def test_grouped_queries_read_fewer_keys() -> None:
    shape = shape_of("llama-3.1-8b")
    ops = ops_of("llama-3.1-8b", "decode", precision="bf16", batch=4, seq_in=8192, engine="vllm")
    read = total(ops, "read", "decode_attention")
    cache = 2 * shape.layers * 4 * 8192 * shape.kv_heads * shape.head_dim * 2
    assert cache <= read < 1.01 * cache


def test_windowed_layers_read_the_window_only() -> None:
    """Every second layer of gpt-oss sees 128 tokens; every sixth of Gemma 3 sees all, the others 1,024."""
    for model, window, every in (("gpt-oss-20b", 128, 2), ("gemma-3-27b", 1024, 6)):
        shape = shape_of(model)
        token = 2 * 2 * shape.kv_heads * shape.head_dim
        full = shape.layers // every
        for context in (64, 16384, 131072):
            ops = ops_of(model, "decode", precision="bf16", batch=4, seq_in=context, engine="vllm")
            cache = 4 * token * (full * context + (shape.layers - full) * min(context, window))
            queries = shape.layers * 4 * shape.heads * shape.head_dim * 2
            assert total(ops, "read", "decode_attention") == pytest.approx(cache + queries)


def test_quantised_kv_cache_is_read_as_stored() -> None:
    wide, narrow = (
        ops_of("llama-3.1-8b", "decode", precision="bf16", batch=4, seq_in=8192, engine="vllm", kv_precision=kind)
        for kind in ("bf16", "fp8")
    )
    assert total(narrow, "read", "decode_attention") == pytest.approx(total(wide, "read", "decode_attention") / 2, rel=0.01)


@pytest.mark.parametrize("engine", ["cuda-graphs", "vllm", "tensorrt-llm", "pytorch"])
def test_a_token_reads_every_weight_once_with_gate_and_up(engine: str) -> None:
    shape = shape_of("llama-2-7b")
    ops = ops_of("llama-2-7b", "decode", precision="bf16", batch=1, seq_in=16, engine=engine)
    weights = 2 * (shape.layers * shape.hidden * (4 * shape.hidden + 3 * shape.ffn) + shape.vocab * shape.hidden)
    assert total(ops, "read", "gemm") == pytest.approx(weights, rel=0.002)


@pytest.mark.parametrize(("precision", "share"), [("fp8", 0.5), ("int4", 0.26), ("q4_k_m", 0.307), ("q8_0", 0.53)])
def test_stored_weight_bytes_decide_decode_reads(precision: str, share: float) -> None:
    engine = "llama.cpp" if precision.startswith("q") else "vllm"
    plain = ops_of("llama-3.1-8b", "decode", precision="bf16", batch=1, seq_in=16, engine=engine)
    packed = ops_of("llama-3.1-8b", "decode", precision=precision, batch=1, seq_in=16, engine=engine)
    head = 2 * 128256 * 4096 if engine == "vllm" else 0
    kinds = ("gemm", "weight_only_gemm", "mmq_gemm")
    assert (total(packed, "read", *kinds) - head) == pytest.approx(share * (total(plain, "read", *kinds) - head), rel=0.02)


def test_a_batch_touches_the_experts_it_is_sent_to() -> None:
    assert touched_experts(Experts(8, 2, 1), 1.0) == pytest.approx(2)
    assert touched_experts(Experts(64, 8, 1), 16.0) == pytest.approx(64 * (1 - (7 / 8) ** 16))
    shape = shape_of("mixtral-8x7b")
    one, many = (ops_of("mixtral-8x7b", "decode", precision="bf16", batch=batch, seq_in=16, engine="vllm") for batch in (1, 256))
    expert = 2 * 3 * shape.layers * shape.hidden * 14336
    assert total(one, "read", "moe") == pytest.approx(2 * expert, rel=0.01)
    assert total(many, "read", "moe") == pytest.approx(8 * expert, rel=0.05)


@pytest.mark.parametrize("skew", [1.0, 4.0, 50.0, 1000.0])
def test_skewed_routing_touches_fewer_experts(skew: float) -> None:
    tokens = np.array([1.0, 2.0, 8.0, 64.0, 4096.0])
    touched = np.asarray(distinct_experts(tokens, 8, 128, skew))
    assert touched[0] == pytest.approx(8.0)
    assert (np.diff(touched) > 0).all()
    assert (touched <= np.asarray(distinct_experts(tokens, 8, 128)) + 1e-9).all()
    assert distinct_experts(3.0, 8, 8, skew) == pytest.approx(8.0)


def test_prompts_make_logits_of_their_last_token_only() -> None:
    shape = shape_of("llama-3.1-8b")
    ops = ops_of("llama-3.1-8b", "prefill", precision="bf16", batch=2, seq_in=1024, engine="pytorch-compile")
    head = next(op for op in ops if op.kind == "gemm" and op.sizes["n"] == shape.vocab)
    assert head.sizes["m"] == 2
    assert total(ops, "flops", "gemm") == pytest.approx(2 * 2048 * count_parameters(shape).linear, rel=0.01)


def test_sliding_window_bounds_attended_tokens() -> None:
    shape = shape_of("mistral-7b")
    whole, windowed = (replace(shape, window=window, global_every=0) for window in (0, 1024))
    request = fill_defaults(Workload("prefill", "mistral-7b", batch=1, seq_in=8192, engine="vllm", precision="bf16"), shape)
    flops = [total(lower(request, one).ops, "flops", "attention") for one in (whole, windowed)]
    assert flops[1] / flops[0] == pytest.approx((8192 * 1024 - 1024**2 / 2) / (8192**2 / 2))


def test_a_batch_of_answers_is_prompts_and_tokens_at_the_mean_context() -> None:
    shape = shape_of("llama-3.1-8b")
    request = fill_defaults(Workload("batch", "llama-3.1-8b", batch=8, seq_in=1000, seq_out=200, precision="bf16"), shape)
    prompts, token = lower(replace(request, task="prefill"), shape), lower(request, shape)
    assert next(op for op in prompts.ops if op.kind == "attention").sizes["queries"] == 1000
    assert next(op for op in token.ops if op.kind == "decode_attention").sizes["keys"] == 1100


def test_cuda_graph_engines_have_no_launch_calls() -> None:
    shape = shape_of("llama-3.2-1b")
    for engine, calls in (("cuda-graphs", False), ("vllm", False), ("pytorch", True)):
        request = fill_defaults(Workload("decode", "llama-3.2-1b", batch=1, seq_in=64, engine=engine, precision="bf16"), shape)
        assert bool(lower(request, shape).calls_forward) is calls


def test_a_fused_step_moves_less_than_an_eager_one() -> None:
    eager, compiled = (
        ops_of("gpt2", "train", precision="amp-bf16", batch=8, seq_in=1024, engine=engine)
        for engine in ("pytorch", "pytorch-compile")
    )
    assert total(compiled, "flops", "gemm") == pytest.approx(total(eager, "flops", "gemm"), rel=0.02)
    moved = [
        sum(float((op.read + op.write) * op.count) for op in ops if CLASS_BY_KIND[op.kind] == "memory")
        for ops in (eager, compiled)
    ]
    assert moved[1] < 0.4 * moved[0]


SAMPLES = (
    ("llama-3.1-8b", "train"), ("gpt2", "train"), ("bert-large", "train"), ("t5-base", "train"), ("mixtral-8x7b", "train"),
    ("whisper-large-v3", "train"), ("llama-3.1-8b", "decode"), ("llama-3.1-8b", "prefill"), ("mixtral-8x7b", "decode"),
    ("deepseek-v3", "decode"), ("deepseek-v3", "prefill"), ("gemma-2-9b", "prefill"), ("bert-base", "forward"),
    ("t5-base", "forward"), ("llama-3.1-8b", "batch"),
)  # fmt: skip


@pytest.mark.sweep(3)
@pytest.mark.parametrize("engine", engine_ids())
@pytest.mark.parametrize(("name", "task"), SAMPLES)
def test_arrays_over_batches_agree_with_single_batches(name: str, task: str, engine: str) -> None:
    shape = shape_of(name)
    request = fill_defaults(Workload(task, name, precision="bf16", seq_in=256, engine=engine), shape)  # type: ignore[arg-type]
    batches = np.array([1.0, 3.0, 16.0])
    together = lower(request, shape, batches).ops
    for place, batch in enumerate(batches):
        alone = lower(request, shape, float(batch)).ops
        # Kernels of other batches count zero times.
        at_batch = [op for op in together if np.broadcast_to(op.count, 3)[place] > 0]
        assert len(alone) == len(at_batch)
        for one, all_ in zip(alone, at_batch, strict=True):
            for what in ("flops", "read", "write", "count"):
                mine, whole = getattr(one, what), np.broadcast_to(getattr(all_, what), 3)
                assert whole[place] == pytest.approx(mine), (one.kind, what)
            assert all(np.broadcast_to(all_.sizes[key], 3)[place] == pytest.approx(size) for key, size in one.sizes.items())


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", [model.id for model in CATALOG.models])
def test_every_built_in_model_can_be_lowered(name: str) -> None:
    shape = find_model(name, CATALOG)
    tasks = ("train", "forward", "prefill", "decode") if isinstance(shape, Transformer) else ("forward",)
    for task in tasks:
        request = fill_defaults(Workload(task, name, batch=2), shape)  # type: ignore[arg-type]
        ops = lower(request, shape).ops
        assert all(op.kind in CLASS_BY_KIND and op.count > 0 and min(op.flops, op.read, op.write) >= 0 for op in ops)
        assert total(ops, "flops") > 0


def test_a_perceptron_needs_no_gradient_of_its_inputs() -> None:
    units = (9000, 4000, 4000, 32)
    shape = Mlp("mlp", units)
    request = fill_defaults(Workload("train", "mlp:9000x4000x4000x32", batch=128), shape)
    ops = lower(request, shape).ops
    sizes = [2 * 128 * a * b for a, b in pairwise(units)]
    assert total(ops, "flops", "gemm") == 3 * sum(sizes) - sizes[0]


def test_a_recommendation_model_looks_up_a_row_of_each_table() -> None:
    shape = Dlrm("dlrm", 128, (1000, 2000, 3000), (13, 512, 128), (1024, 1))
    ops = lower(fill_defaults(Workload("forward", "dlrm", batch=64), shape), shape).ops
    assert total(ops, "read", "embedding") == 3 * 64 * 128 * 4
