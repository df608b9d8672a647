"""What operators and layers keep for their backward pass, counted by hand: elements, bytes, gradients."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.estimate.memory.training.embedding_and_head import embedding_block, head_block
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS, OperatorWriter
from whichgpu.estimate.memory.training.tape import Tape, TapeBlock, TapeTensor
from whichgpu.workload.layer_pattern import LayerParts
from whichgpu.workload.shapes import Experts, LatentAttention, Transformer

HALF, FULL, MIXED = WIDTHS["bf16"], WIDTHS["fp32"], WIDTHS["amp-bf16"]
T = 10  # tokens
H, F, Q, K = 64, 256, 64, 16  # hidden, MLP, eight heads of 8, two of keys
TINY = Transformer("tiny", "llama", H, 4, 8, 2, 8, F, 1000, True, "rms", "silu", False, True, 0, 4096)


def writer(precision: str = "bf16", **more: Any) -> OperatorWriter:
    return OperatorWriter(Tape(), T, WIDTHS[precision], **more)


def input_tensor(write: OperatorWriter, features: int = 32, width: int | None = None) -> TapeTensor:
    return write.tape.value(T * features, width or write.widths.stream)


def saved_bytes(write: OperatorWriter) -> int:
    values = {value.id: value.size for node in write.tape.nodes for value in node.saved}
    return sum(values.values()) + sum(node.extra for node in write.tape.nodes)


def gradients(write: OperatorWriter) -> list[int]:
    return [node.parameter_gradient for node in write.tape.nodes if node.parameter_gradient]


def test_widths_by_precision() -> None:
    assert {name: (one.parameter, one.stream, one.compute, one.mixed) for name, one in WIDTHS.items()} == {
        **dict.fromkeys(("fp32", "fp32-default", "tf32"), (4, 4, 4, False)),
        **dict.fromkeys(("amp-bf16", "amp-fp16"), (4, 4, 2, True)),
        **dict.fromkeys(("bf16", "fp16", "fp8", "nvfp4"), (2, 2, 2, False)),
    }


@pytest.mark.parametrize(
    ("precision", "kept_bytes", "gradient", "temporary"), [("bf16", 2, 2, 0), ("fp32", 4, 4, 0), ("amp-bf16", 2, 4, 2)]
)
def test_a_linear_layer(precision: str, kept_bytes: int, gradient: int, temporary: int) -> None:
    write = writer(precision)
    out = write.linear(input_tensor(write), 48, bias=True)
    assert (out.count, out.width) == (T * 48, write.widths.compute)
    assert saved_bytes(write) == T * 32 * kept_bytes
    assert gradients(write) == [(32 * 48 + 48) * gradient]
    assert write.tape.nodes[-1].backward_temporary == (32 * 48 + 48) * temporary
    plain = writer(precision, copies=3)
    plain.linear(input_tensor(plain), 48)
    assert gradients(plain) == [3 * 32 * 48 * gradient]


def test_adapter_on_a_frozen_layer() -> None:
    write = writer(lora_rank=4)
    out = write.linear(input_tensor(write), 48, role="q")
    assert (out.count, out.width) == (T * 48, 2)
    assert gradients(write) == [32 * 4 * 2, 4 * 48 * 2]
    assert saved_bytes(write) == T * 32 * 2 + T * 4 * 2
    assert [node.output.count for node in write.tape.nodes] == [T * 48, T * 4, T * 48, T * 48, T * 48]
    aside = writer(lora_rank=4, targets=frozenset({"q"}))
    aside.linear(input_tensor(aside), 48, role="up")
    assert (gradients(aside), saved_bytes(aside), aside.tape.nodes[-1].output.count) == ([], 0, T * 48)
    among = writer(lora_rank=4, targets=frozenset({"q"}))
    among.linear(input_tensor(among), 48, role="q")
    assert len(gradients(among)) == 2


def test_rms_norm_in_operators() -> None:
    write = writer()
    out = write.rms_norm(input_tensor(write))
    # an fp32 copy, one number a row, and what the weight multiplies
    assert saved_bytes(write) == T * 32 * 4 + T * 4 + T * 32 * 2
    assert gradients(write) == [32 * 2]
    assert out.width == 2
    wide = writer()
    wide.rms_norm(input_tensor(wide), wide_weight=True)
    assert saved_bytes(wide) == 2 * T * 32 * 4 + T * 4
    assert gradients(wide) == [32 * 2]
    frozen = writer(lora_rank=4)
    frozen.rms_norm(input_tensor(frozen))
    assert gradients(frozen) == []
    assert saved_bytes(frozen) == T * 32 * 4 + T * 4
    wide_frozen = writer(lora_rank=4)
    wide_frozen.rms_norm(input_tensor(wide_frozen), wide_weight=True)
    assert gradients(wide_frozen) == []


def test_layer_norm_keeps_its_input_and_two_numbers_a_row() -> None:
    for precision, width, parameter in (("bf16", 2, 2), ("fp32", 4, 4), ("amp-bf16", 4, 4)):
        write = writer(precision)
        write.layer_norm(input_tensor(write))
        assert saved_bytes(write) == T * 32 * width + 8 * T
        assert gradients(write) == [2 * 32 * parameter]
    cast = writer("amp-bf16")
    assert cast.layer_norm(input_tensor(cast, width=2)).width == 4
    assert saved_bytes(cast) == T * 32 * 4 + 8 * T
    frozen = writer(lora_rank=1)
    frozen.layer_norm(input_tensor(frozen))
    assert gradients(frozen) == []


def test_elementwise_operators() -> None:
    write = writer()
    x, y = input_tensor(write), input_tensor(write, width=4)
    assert write.add(x, y).width == 4
    assert saved_bytes(write) == 0
    assert write.multiply(x, y).width == 4
    assert saved_bytes(write) == x.size + y.size
    assert write.cast(x, 2) is x
    assert write.cast(x, 4).size == 2 * x.size
    for name in ("keeps_input", "keeps_output", "scale"):
        one = writer()
        value = input_tensor(one)
        output = getattr(one, name)(value)
        assert (output.count, output.width) == (value.count, value.width)
        assert saved_bytes(one) == (0 if name == "scale" else value.size)
    dropped = writer()
    value = input_tensor(dropped)
    assert dropped.dropout(value, 0.0) is value
    assert dropped.dropout(value, 0.1).count == value.count
    assert saved_bytes(dropped) == value.count  # a mask of one byte each


def test_gelu_written_out() -> None:
    write = writer()
    x = input_tensor(write)
    write.gelu_tanh(x)
    assert saved_bytes(write) == 4 * x.size  # what is cubed, what came of tanh, and both factors of the last product
    mixed = writer("amp-bf16")
    narrow = input_tensor(mixed, width=2)
    mixed.gelu_tanh(narrow)
    assert saved_bytes(mixed) == 4 * narrow.count + 4 * narrow.count + 2 * narrow.count + 4 * narrow.count


def test_rotary_saves_nothing_and_has_the_hidden_width() -> None:
    write = writer("amp-bf16")
    out = write.rotary(input_tensor(write, width=2))
    assert (out.count, out.width, saved_bytes(write)) == (T * 32, 4, 0)
    assert [node.output.width for node in write.tape.nodes] == [4, 2, 4, 4]


def test_attention_fused_and_written_out() -> None:
    write = writer()
    q, k, v = input_tensor(write, Q), input_tensor(write, K), input_tensor(write, K)
    out = write.attention(q, k, v, 8, Q, "sdpa", 5)
    assert saved_bytes(write) == q.size + k.size + v.size + out.size + 4 * T * 8
    assert write.tape.nodes[-1].backward_temporary == 4 * q.count
    eager = writer()
    q, k, v = input_tensor(eager, Q), input_tensor(eager, K), input_tensor(eager, K)
    out = eager.attention(q, k, v, 8, Q, "eager", 5, 0.1)
    scores = T * 8 * 5
    # q and k, the softmax in fp32, a mask, the dropped-out shares in 16 bit, and v
    assert saved_bytes(eager) == q.size + k.size + scores * 4 + scores + scores * 2 + v.size
    assert out.count == T * Q


def block(shape: Transformer = TINY, precision: str = "bf16", **run: Any) -> TapeBlock:
    plain: dict[str, Any] = {"tokens": T, "sequence": 5, "attention": "sdpa"}
    return layer_block(shape, LayerRun(**(plain | run)), WIDTHS[precision])


NORM = [H * 2]


def test_the_weights_of_a_layer_are_its_parameters() -> None:
    attention = [H * Q * 2, H * K * 2, H * K * 2, Q * H * 2]
    assert sorted(block().weights) == sorted([*NORM * 2, *attention, *[H * F * 2] * 3])
    plain = replace(TINY, gated=False, norm="layer", activation="gelu", qkv_bias=True, out_bias=True, mlp_bias=True)
    biased = [(H * Q + Q) * 2, *[(H * K + K) * 2] * 2, (Q * H + H) * 2, (H * F + F) * 2, (F * H + H) * 2]
    assert sorted(block(plain).weights) == sorted([*[2 * H * 2] * 2, *biased])
    assert len(block(replace(TINY, norms=4)).weights) == len(block().weights) + 2
    assert len(block(replace(TINY, parallel_block=True, norms=1)).weights) == len(block().weights) - 1
    assert sorted(block(replace(TINY, parallel_block=True, norms=2)).weights) == sorted(block().weights)
    assert sorted(block(replace(TINY, qk_norm=True)).weights) == sorted([*block().weights, Q * 2, K * 2])
    joined = replace(plain, model_type="gpt2")
    assert (H * 3 * Q + 3 * Q) * 2 in block(joined).weights
    assert (H * 3 * Q + 3 * Q) * 2 not in block(joined, attention="eager").weights


def test_tensors_saved_by_a_layer() -> None:
    norm = T * H * 4 + T * 4 + T * H * 2
    attention = (
        T * H * 2 + (T * Q + 2 * T * K) * 2 + T * Q * 2 + 4 * T * 8
    )  # normed input is the norm's own output: counted there
    mlp = T * H * 2 + 4 * T * F * 2  # its input; gate, activated gate, up and their product
    assert block().saved_bytes == 2 * norm + attention + mlp
    dropped = block(replace(TINY, dropout=0.1))
    assert dropped.saved_bytes == block().saved_bytes + 2 * T * H
    relu = block(replace(TINY, activation="relu"))
    assert relu.saved_bytes == block().saved_bytes - T * F * 2  # what came out is a factor already


def test_moe_saves_the_rows_it_routes() -> None:
    mixture = replace(TINY, experts=Experts(8, 2, 32, shared_ffn=24))
    weights = block(mixture, parts=LayerParts(experts=True)).weights
    assert weights.count(8 * H * 32 * 2) == 3
    assert weights.count(H * 24 * 2) == 3
    assert H * 8 * 2 in weights  # the router
    without = replace(TINY, experts=Experts(8, 2, 32))
    assert len(block(without, parts=LayerParts(experts=True)).weights) == len(weights) - 3
    assert block(mixture, parts=LayerParts(experts=False)).weights == block().weights


def test_latent_attention_has_low_ranks() -> None:
    mla = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    weights = block(mla).weights
    for size in (H * 24, 24 * 8 * 12, H * 20, 16 * 8 * 14, 8 * 6 * H, 24, 16):
        assert size * 2 in weights
    direct = replace(TINY, mla=LatentAttention(kv_rank=16, q_rank=0, nope_dim=8, rope_dim=4, value_dim=6))
    assert H * 8 * 12 * 2 in block(direct).weights


def test_cross_attention_reads_the_encoder() -> None:
    crossed = block(replace(TINY, rope=False), cross_tokens=30, cross_sequence=15)
    assert len(crossed.weights) == len(block().weights) + 5  # four projections and a norm
    more = crossed.saved_bytes - block(replace(TINY, rope=False)).saved_bytes
    norm = T * H * 4 + T * 4 + T * H * 2
    assert more == norm + T * H * 2 + 30 * H * 2 + T * Q * 2 + 2 * 30 * K * 2 + T * Q * 2 + 4 * T * 8


def test_families_that_norm_afterwards() -> None:
    bert = replace(TINY, model_type="bert", norm="layer", causal=False, gated=False, activation="gelu", rope=False)
    assert sorted(block(bert).weights)[:2] == [2 * H * 2] * 2
    first = block(bert).nodes[0]
    assert first.inputs == (block(bert).entry,)
    assert first.parameter_gradient == H * Q * 2  # a projection comes first, not a norm
    assert block(TINY).nodes[-1].passes
    assert not block(bert).nodes[-1].passes
    dropped = replace(bert, model_type="t5", dropout=0.1)
    assert block(dropped).saved_bytes == block(replace(dropped, model_type="x")).saved_bytes + T * F


def test_the_embedding_and_the_head() -> None:
    plain = embedding_block(TINY, T, HALF)
    assert (plain.exit.count, plain.saved_bytes, plain.entry.size) == (T * H, 0, 8 * T)
    rich = replace(TINY, positions=100, token_types=2, embedding_norm=True, dropout=0.1)
    assert len(embedding_block(rich, T, HALF).nodes) == 1 + 4 + 2
    assert embedding_block(rich, T, HALF).saved_bytes == T * H * 2 + 8 * T + T * H
    head = head_block(TINY, T, HALF)
    norm = T * H * 4 + T * 4 + T * H * 2
    assert head.weights == (H * 2, H * 1000 * 2)
    assert head.saved_bytes == norm + T * H * 2 + T * 1000 * 4  # shares in fp32
    assert [value.width for value in head.hold] == [2, 4]
    assert head.exit.size == 4
    full = head_block(TINY, T, FULL)
    assert len(full.hold) == 1
    own = head_block(replace(TINY, model_type="bert", norm="layer", causal=False, lm_transform=True), T, HALF)
    assert own.weights == ((H * H + H) * 2, 2 * H * 2, H * 1000 * 2)
    assert own.saved_bytes == T * H * 2 * 2 + (T * H * 2 + 8 * T) + T * H * 2 + T * 1000 * 2
    autocast = head_block(replace(TINY, model_type="bert", norm="layer", causal=False), T, MIXED)
    assert autocast.saved_bytes == T * H * 2 + T * 1000 * 4
    frozen = head_block(TINY, T, HALF, lora_rank=4)
    assert frozen.weights == ()
    capped = head_block(replace(TINY, model_type="gemma2"), T, HALF)
    assert capped.saved_bytes == 2 * T * H * 4 + T * 4 + T * H * 2 + T * 1000 * 2 + T * 1000 * 4
