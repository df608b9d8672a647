"""Activations that a layer saves for its backward pass: bytes per token of a tiny model, by hand from autograd's rules."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from whichgpu.estimate.memory.training.allocation_log import AllocationLog
from whichgpu.estimate.memory.training.embedding_and_head import embedding_block, head_block
from whichgpu.estimate.memory.training.layers import LayerRun, layer_block
from whichgpu.estimate.memory.training.operators import WIDTHS, ElementWidths
from whichgpu.workload.layer_pattern import LayerParts
from whichgpu.workload.shapes import Experts, LatentAttention, Transformer

# hidden 64, four layers, eight heads of 8 with two of keys, an MLP of 256, 1000 words
TINY = Transformer("tiny", "llama", 64, 4, 8, 2, 8, 256, 1000, True, "rms", "silu", False, True, 0, 4096)
LAYER_NORM = replace(TINY, norm="layer")
T, CONTEXT = 10, 5
# Bytes a token in 16 bits: the stream, keys, the MLP; fused attention's log-sums, one of 4 bytes a head.
H, K, F, SUMS = 128, 32, 512, 32
FUSED = H + K + K + H + SUMS  # queries, keys, values, what comes out
GATED = 4 * F  # the gate before and after its activation, what it is multiplied with, the product
RMS = 256 + 4 + H  # an fp32 copy, a number, and what the weight is multiplied with
LAYER = H + 8  # the input, a mean and a deviation
NORMED = H  # a norm's result, which the products after it keep


def saved_bytes(shape: Transformer, precision: str = "bf16", attention: str = "flash", **run: Any) -> float:
    return layer_block(shape, LayerRun(T, CONTEXT, attention, **run), WIDTHS[precision]).saved_bytes / T


def test_bytes_by_precision() -> None:
    wide, half, mixed = ElementWidths(4, 4, 4), ElementWidths(2, 2, 2), ElementWidths(4, 4, 2)
    expected = {
        "fp32": wide,
        "fp32-default": wide,
        "tf32": wide,
        "bf16": half,
        "fp16": half,
        "amp-bf16": mixed,
        "amp-fp16": mixed,
        "fp8": ElementWidths(2, 2, 2, master=4, operand=1.0),
        "nvfp4": ElementWidths(2, 2, 2, master=4, operand=9 / 16),
    }
    assert expected == WIDTHS
    assert [name for name, widths in WIDTHS.items() if widths.mixed] == ["amp-bf16", "amp-fp16"]


def test_a_llama_layer() -> None:
    assert saved_bytes(TINY) == 2 * (RMS + NORMED) + FUSED + GATED


def test_norms_by_family() -> None:
    assert saved_bytes(LAYER_NORM) == 2 * (LAYER + NORMED) + FUSED + GATED
    wide = 256 + 4 + 256  # Gemma's weight is applied in fp32
    assert saved_bytes(replace(TINY, model_type="gemma")) == 2 * (wide + NORMED) + FUSED + GATED
    assert saved_bytes(replace(TINY, model_type="gemma2", norms=4)) == 2 * (wide + NORMED) + 2 * wide + FUSED + GATED
    assert saved_bytes(replace(TINY, parallel_block=True, norms=1)) == RMS + NORMED + FUSED + GATED
    # GPT-NeoX normalises the inputs of attention and MLP apart, but both from the same tensor, cast to fp32 for each.
    assert saved_bytes(replace(TINY, parallel_block=True, norms=2)) == 2 * (RMS + NORMED) + FUSED + GATED
    of_heads = (256 + 4 + H) + (64 + 4 + K)  # of queries and keys
    assert saved_bytes(replace(TINY, qk_norm=True)) == 2 * (RMS + NORMED) + of_heads + FUSED + GATED
    # BERT normalises sums; inputs are saved by the first GEMMs
    assert saved_bytes(replace(LAYER_NORM, model_type="bert", gated=False)) == NORMED + LAYER + NORMED + FUSED + 2 * F + LAYER


def test_autocast_saves_a_16_bit_copy_for_each_gemm() -> None:
    norm = 256 + 4 + 256  # all in fp32, the stream's width
    assert saved_bytes(TINY, "amp-bf16") == 2 * norm + 3 * H + FUSED + 2 * H + GATED
    assert saved_bytes(LAYER_NORM, "amp-fp16") == 2 * (256 + 8) + 3 * H + FUSED + 2 * H + GATED


def test_fp32_doubles_all_saved_tensors_except_fp32_ones() -> None:
    assert saved_bytes(LAYER_NORM, "fp32") == 2 * (256 + 8 + 256) + 2 * (FUSED - SUMS) + SUMS + 2 * GATED
    assert saved_bytes(TINY, "fp32") == 2 * (256 + 4 + 256 + 256) + 2 * (FUSED - SUMS) + SUMS + 2 * GATED


def mlp(**changed: Any) -> float:
    """Tensors saved by the MLP alone, without its input."""
    return saved_bytes(replace(LAYER_NORM, **changed)) - 2 * (LAYER + NORMED) - FUSED


def test_activation_functions_save_input_or_output() -> None:
    assert mlp(gated=False) == 2 * F
    assert mlp(gated=False, activation="relu") == F  # which the next product keeps as well
    assert mlp(activation="relu") == 3 * F
    # x for its cube, tanh's result, the two factors, the product
    assert mlp(gated=False, activation="gelu_tanh") == 5 * F
    # autocast raises to a power in fp32: x, tanh's result and one factor in fp32, the other not; the product cast again
    input_bytes = 2 * (256 + 8) + 3 * H + FUSED + H
    assert saved_bytes(replace(LAYER_NORM, gated=False, activation="gelu_tanh"), "amp-bf16") == input_bytes + 3 * 2 * F + F + F


def test_dropout_keeps_a_byte_an_element() -> None:
    more = {name: replace(LAYER_NORM, model_type=name, gated=False, dropout=0.1) for name in ("llama", "t5", "bart")}
    plain = saved_bytes(replace(LAYER_NORM, gated=False))
    assert saved_bytes(more["llama"]) == plain + 2 * 64
    assert saved_bytes(more["t5"]) == saved_bytes(more["bart"]) == plain + 2 * 64 + 256  # inside the MLP, too
    assert saved_bytes(replace(LAYER_NORM, gated=False, dropout=0.0)) == plain


def test_materialised_scores_are_saved_in_fp32_and_in_the_compute_dtype() -> None:
    pairs = 8 * CONTEXT
    for precision, cast in (("bf16", 2), ("fp32", 0)):
        eager, flash = saved_bytes(LAYER_NORM, precision, "eager"), saved_bytes(LAYER_NORM, precision)
        assert eager - flash == pairs * (4 + cast) - SUMS
    dropped = replace(LAYER_NORM, dropout=0.1)
    masks = 2 * 64
    # after dropout there is another copy, and a mask; what went in is no longer needed
    assert saved_bytes(dropped, attention="eager") - masks == saved_bytes(LAYER_NORM, attention="eager") + pairs
    assert saved_bytes(dropped, "fp32", "eager") - masks == saved_bytes(LAYER_NORM, "fp32", "eager") + pairs * (4 + 1)


def test_gpt_2_keeps_its_joined_projection() -> None:
    gpt2 = replace(LAYER_NORM, model_type="gpt2", kv_heads=8, gated=False)
    assert saved_bytes(gpt2) == 2 * (LAYER + NORMED) + 3 * H + H + SUMS + 2 * F
    assert layer_block(gpt2, LayerRun(T, CONTEXT, "flash"), WIDTHS["fp32"]).weights[1] == 4 * (64 * 192 + 192)
    assert len(layer_block(gpt2, LayerRun(T, CONTEXT, "eager"), WIDTHS["fp32"]).weights) == 2 + 4 + 2


def test_decoder_with_cross_attention() -> None:
    """Seven tokens of the encoder for ten of the decoder."""
    crossed = saved_bytes(LAYER_NORM, cross_tokens=7, cross_sequence=7) * T
    encoded = 7 * (H + K + K)  # its output, once for both, and keys and values of it
    assert crossed == saved_bytes(LAYER_NORM) * T + T * (LAYER + NORMED + H + H + SUMS) + encoded
    eager = saved_bytes(LAYER_NORM, attention="eager", cross_tokens=7, cross_sequence=7) * T
    assert eager - saved_bytes(LAYER_NORM, attention="eager") * T == T * (LAYER + NORMED + H + H + 8 * 7 * 6) + encoded


def test_latents() -> None:
    """Queries through a rank of 24, keys and values through one of 16 with 4 rotary dimensions, values of 6 per head."""
    shape = replace(LAYER_NORM, mla=LatentAttention(kv_rank=16, q_rank=24, nope_dim=8, rope_dim=4, value_dim=6))
    ranks = sum(4 * rank + 4 + 2 * rank + 2 * rank for rank in (24, 16))  # normalised, and saved by the following GEMM
    heads = 2 * 8 * (12 + 12 + 6 + 6) + SUMS
    assert saved_bytes(shape) == 2 * (LAYER + NORMED) + ranks + heads + GATED
    direct = replace(LAYER_NORM, mla=LatentAttention(16, 0, 8, 4, 6))
    assert saved_bytes(direct) == saved_bytes(shape) - (4 * 24 + 4 + 4 * 24)


def test_moe_saves_routed_rows() -> None:
    shape = replace(LAYER_NORM, experts=Experts(8, 2, 32))
    routed = 2 * H + 4 * 2 * (2 * 32) + 2 * H  # gathered, inside the experts, and before they are added up
    assert saved_bytes(shape, parts=LayerParts(experts=True)) == 2 * (LAYER + NORMED) + FUSED + routed
    shared = replace(LAYER_NORM, experts=Experts(8, 2, 32, shared_ffn=48))
    assert saved_bytes(shared, parts=LayerParts(experts=True)) - saved_bytes(shape, parts=LayerParts(experts=True)) == 4 * 2 * 48
    assert saved_bytes(shape) == saved_bytes(LAYER_NORM)


def weights(shape: Transformer, **run: Any) -> list[int]:
    """Elements of each trained weight."""
    return [size // 2 for size in layer_block(shape, LayerRun(T, CONTEXT, "flash", **run), WIDTHS["bf16"]).weights]


def test_weights_of_a_layer() -> None:
    square, keys, wide = 64 * 64, 64 * 16, 64 * 256
    assert weights(TINY) == [64, square, keys, keys, square, 64, wide, wide, wide]
    assert weights(replace(LAYER_NORM, gated=False)) == [128, square, keys, keys, square, 128, wide, wide]
    biased = replace(TINY, qkv_bias=True, out_bias=True, mlp_bias=True)
    assert weights(biased) == [64, square + 64, keys + 16, keys + 16, square + 64, 64, wide + 256, wide + 256, wide + 64]
    mixture = weights(replace(TINY, experts=Experts(8, 2, 32)), parts=LayerParts(experts=True))
    assert mixture[6:] == [64 * 8, *[8 * 64 * 32] * 3]
    crossed = weights(LAYER_NORM, cross_tokens=7, cross_sequence=7)
    assert crossed[5:10] == [128, square, keys, keys, square]


def test_adapters_are_all_that_is_trained() -> None:
    down_up = [64 * 4, 4 * 64]
    keys, wide = [64 * 4, 4 * 16], [64 * 4, 4 * 256]
    assert weights(TINY, lora_rank=4) == [*down_up, *keys, *keys, *down_up, *wide, *wide, *reversed(wide)]
    some: dict[str, Any] = {"lora_rank": 4, "lora_targets": frozenset({"q", "v"})}
    assert weights(TINY, **some) == [*down_up, *keys]
    rms = 256 + 4  # nothing for a weight that is frozen
    inner = 2 * 4  # of each adapter
    assert saved_bytes(TINY, lora_rank=4) == 2 * (rms + NORMED) + FUSED + GATED + 7 * inner
    # With dropout each adapter saves its own copy and a mask of its input instead: six of 64 elements and one of 256.
    shared = 2 * NORMED + F  # outputs of both norms and the input of the last layer
    dropping = saved_bytes(TINY, lora_rank=4, lora_dropout=0.05)
    assert dropping == saved_bytes(TINY, lora_rank=4) - shared + (2 + 1) * (6 * 64 + 256)
    gemma = replace(TINY, model_type="gemma")
    assert weights(gemma, lora_rank=4) == weights(TINY, lora_rank=4)
    assert weights(gemma) == weights(TINY)
    assert (
        saved_bytes(TINY, **some) == 2 * rms + NORMED + FUSED + 3 * F + 2 * inner
    )  # the MLP's products and the last one keep nothing


def head(shape: Transformer, precision: str = "bf16", rank: int = 0) -> float:
    return head_block(shape, T, WIDTHS[precision], rank).saved_bytes / T


def test_the_loss_keeps_shares_of_the_vocabulary() -> None:
    assert head(TINY) == RMS + NORMED + 4000
    assert head(LAYER_NORM) == LAYER + NORMED + 4000
    assert head(replace(TINY, model_type="gemma")) == 256 + 4 + 256 + NORMED + 4000
    assert head(replace(TINY, model_type="gemma2")) == 256 + 4 + 256 + NORMED + 2000 + 4000  # what bends the logits
    assert head(TINY, "amp-bf16") == 256 + 4 + 256 + H + 4000
    assert head(TINY, rank=4) == 256 + 4 + 4000
    bert = replace(LAYER_NORM, model_type="bert", causal=False)
    assert head(bert) == NORMED + 2000  # in the logits' own width
    assert head(bert, "amp-bf16") == H + 4000
    assert head(bert, "fp32") == 2 * NORMED + 4000
    # a product, its activation, a norm
    assert head(replace(bert, lm_transform=True)) == NORMED + H + LAYER + NORMED + 2000
    assert head_block(replace(bert, lm_transform=True), T, WIDTHS["bf16"]).weights == (2 * (64 * 64 + 64), 2 * 128, 2 * 64000)
    assert head_block(TINY, T, WIDTHS["bf16"]).weights == (128, 128000)
    assert head_block(TINY, T, WIDTHS["bf16"], 4).weights == ()


@pytest.mark.parametrize(
    ("name", "precision", "widths"),
    [("llama", "bf16", 2 + 4 + 4), ("llama", "fp32", 4 + 4), ("bert", "bf16", 2 + 2), ("bert", "amp-bf16", 2 + 4)],
)
def test_logits_are_there_while_the_loss_runs(name: str, precision: str, widths: int) -> None:
    """As made, in fp32 where they are cast, and the shares."""
    ledger = AllocationLog()
    shape = replace(TINY, model_type=name, vocab=100_000)
    head_block(shape, T, WIDTHS[precision]).forward(ledger, ledger.new(H * T, "input"))
    assert ledger.replay(pools=False).peak_allocated == pytest.approx(T * 100_000 * widths, rel=0.005)  # and the input


def test_embeddings_save_masks_and_norm_inputs() -> None:
    def kept_of(**changed: Any) -> float:
        return embedding_block(replace(TINY, **changed), T, WIDTHS["bf16"]).saved_bytes / T

    assert kept_of() == 0
    assert kept_of(positions=512, token_types=2) == 0
    assert kept_of(dropout=0.1) == 64
    assert kept_of(embedding_norm=True) == LAYER
    assert embedding_block(TINY, T, WIDTHS["amp-bf16"]).exit.size == T * 256
    for positions, types, saved in ((0, 0, 1), (512, 0, 3), (512, 2, 3)):
        ledger = AllocationLog()
        embedding_block(replace(TINY, positions=positions, token_types=types), 512, WIDTHS["bf16"]).forward(ledger, None)
        assert ledger.replay(pools=False).peak_allocated == saved * 512 * H  # two and their sum


def test_backward_workspace() -> None:
    """Fused attention adds up the gradient of queries in fp32; autocast's weight gradients come in 16 bits first."""
    nodes = layer_block(TINY, LayerRun(T, CONTEXT, "flash"), WIDTHS["bf16"]).nodes
    assert sum(node.backward_temporary for node in nodes) == 4 * 64 * T
    mixed = layer_block(TINY, LayerRun(T, CONTEXT, "flash"), WIDTHS["amp-bf16"]).nodes
    assert sum(node.backward_temporary for node in mixed) == 4 * 64 * T + 2 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256)
    joined = layer_block(replace(LAYER_NORM, model_type="gpt2", kv_heads=8), LayerRun(T, CONTEXT, "flash"), WIDTHS["bf16"]).nodes
    assert sum(node.backward_temporary for node in joined) == T * (4 * 64 + 3 * H)  # and the joined gradient
