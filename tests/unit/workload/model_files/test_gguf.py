"""A GGUF file's header gives its model's shape and its weights' bytes; a damaged file is an error that says where."""

from __future__ import annotations

import struct
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pytest
from msgspec.structs import replace

from tests.model_files import LLAMA, TENSORS, gguf_bytes, write
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.memory.quantisation import weight_bytes
from whichgpu.estimate.time.lower.fused.weight_storage import weight_storage
from whichgpu.workload.defaults import fill_defaults
from whichgpu.workload.model_files.gguf import read_gguf
from whichgpu.workload.model_files.gguf_header import TYPES, read_header
from whichgpu.workload.models import find_model, shape_at
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import Transformer
from whichgpu.workload.workload import Workload


def test_a_llama_is_read_with_its_bytes_by_type(tmp_path: Path) -> None:
    shape, weights = read_gguf(write(tmp_path / "m.gguf", gguf_bytes()))
    assert (shape.name, shape.model_type, shape.layers, shape.hidden, shape.ffn) == ("Tiny", "llama", 2, 256, 512)
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.vocab, shape.max_context) == (8, 4, 32, 32, 2048)
    assert shape.tied  # there is no output.weight
    assert weights == {"Q6_K": 32 * 210, "F32": 2 * 1024, "Q4_K": (256 + 128) * 144}
    assert shape.stored_bytes == sum(weights.values())


def test_version_2_is_read_the_same_way(tmp_path: Path) -> None:
    assert read_gguf(write(tmp_path / "m.gguf", gguf_bytes(version=2)))[0].layers == 2


@pytest.mark.parametrize(("version", "why"), [(1, "gguf.bad-version"), (3 << 24, "gguf.bad-version")])
def test_other_versions_are_refused(tmp_path: Path, version: int, why: str) -> None:
    assert _why(write(tmp_path / "m.gguf", gguf_bytes(version=version))).id == why


def test_every_type_has_its_published_bits_a_weight() -> None:
    bits = {one.name.upper(): one.block.bits for one in TYPES.values()}
    assert bits["Q4_0"] == bits["Q4_K"] == bits["IQ4_NL"] == 4.5
    assert (bits["Q8_0"], bits["Q6_K"], bits["Q5_K"], bits["Q3_K"], bits["Q2_K"]) == (8.5, 6.5625, 5.5, 3.4375, 2.625)
    assert (bits["IQ4_XS"], bits["IQ2_XXS"], bits["IQ1_S"], bits["TQ2_0"]) == (4.25, 2.0625, 1.5625, 2.0625)
    assert (bits["MXFP4"], bits["NVFP4"], bits["BF16"], bits["F32"]) == (4.25, 4.5, 16, 32)


@pytest.mark.parametrize(
    ("metadata", "model_type"),
    [
        ({"general.architecture": "qwen2"}, "qwen2"),
        ({"general.architecture": "qwen3"}, "qwen3"),
        ({"general.architecture": "gemma2"}, "gemma2"),
        ({"general.architecture": "gemma3"}, "gemma3"),
        ({"general.architecture": "phi3"}, "phi3"),
        ({"general.architecture": "gpt-oss", "expert_count": 32, "expert_used_count": 4}, "gpt_oss"),
        ({"general.architecture": "llama", "expert_count": 8, "expert_used_count": 2}, "mixtral"),
        ({"general.architecture": "newcomer"}, "newcomer"),
    ],
)
def test_architectures_have_config_json_names(tmp_path: Path, metadata: dict[str, Any], model_type: str) -> None:
    shape = _read(tmp_path, metadata)
    assert shape.model_type == model_type
    assert (shape.experts is not None) == ("expert_count" in metadata)


def test_deepseeks_latent_attention_in_both_forms(tmp_path: Path) -> None:
    common = {"general.architecture": "deepseek2", "attention.kv_lora_rank": 512, "attention.q_lora_rank": 1536,
              "rope.dimension_count": 64, "expert_count": 256, "expert_used_count": 8, "expert_feed_forward_length": 64,
              "expert_shared_count": 1, "leading_dense_block_count": 1}  # fmt: skip
    older = _read(tmp_path, common | {"attention.key_length": 192, "attention.value_length": 128})
    newer = _read(tmp_path, common | {"attention.key_length": 576, "attention.value_length": 512,
                                      "attention.key_length_mla": 192, "attention.value_length_mla": 128})  # fmt: skip
    assert older == newer
    assert older.mla is not None
    assert (older.mla.nope_dim, older.mla.rope_dim, older.mla.value_dim) == (128, 64, 128)
    assert older.experts is not None
    assert (older.experts.shared_ffn, older.experts.dense_layers) == (64, 1)


def test_per_layer_values_count_by_the_largest(tmp_path: Path) -> None:
    shape = _read(tmp_path, {"attention.head_count_kv": [2, 4], "feed_forward_length": [512, 1024]})
    assert (shape.kv_heads, shape.ffn) == (4, 1024)


def test_biases_follow_the_tensors(tmp_path: Path) -> None:
    tensors = TENSORS | {"blk.0.attn_q.bias": (0, (256,)), "output.weight": (14, (256, 32))}
    shape, _ = read_gguf(write(tmp_path / "m.gguf", gguf_bytes(LLAMA | {"general.architecture": "llama"}, tensors)))
    assert (shape.qkv_bias, shape.out_bias, shape.tied) == (True, False, False)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    metadata = {key: value for key, value in LLAMA.items() if key != "llama.block_count"}
    with pytest.raises(UsageError) as caught:
        read_gguf(write(tmp_path / "m.gguf", gguf_bytes(metadata)))
    assert caught.value.message.values["field"] == "llama.block_count"


@pytest.mark.parametrize("architecture", ["mamba", "clip", "t5"])
def test_non_decoder_is_refused(tmp_path: Path, architecture: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_gguf(write(tmp_path / "m.gguf", gguf_bytes(LLAMA | {"general.architecture": architecture})))
    assert caught.value.kind == "unsupported-model"


def test_truncated_file_error_names_the_missing_part(tmp_path: Path) -> None:
    whole = gguf_bytes()
    path = tmp_path / "m.gguf"
    for length in [*range(0, 1200, 7), len(whole) - 40_000, len(whole) - 33]:
        path.write_bytes(whole[:length])
        why = _why(path)
        assert why.id == "gguf.cut"
        assert isinstance(why.values["what"], Message)


@pytest.mark.parametrize("place", [8, 16])
def test_absurd_counts_are_refused_before_allocation(tmp_path: Path, place: int) -> None:
    data = bytearray(gguf_bytes())
    for count in (1 << 63, 1 << 40, 900_000):
        data[place : place + 8] = struct.pack("<Q", count)
        began = perf_counter()
        assert _why(write(tmp_path / "m.gguf", bytes(data))).id in ("gguf.bad-count", "gguf.cut")
        assert perf_counter() - began < 1


def test_a_text_or_array_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    for value in (struct.pack("<IQ", 8, 1 << 50), struct.pack("<IIQ", 9, 8, 1 << 22), struct.pack("<IIQ", 9, 9, 1 << 62)):
        assert _why(write(tmp_path / "m.gguf", head + value + bytes(64))).id in ("gguf.cut", "gguf.bad-count")


def test_arrays_in_arrays_end_somewhere(tmp_path: Path) -> None:
    nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    assert _why(write(tmp_path / "m.gguf", head + nested + bytes(64))).id == "gguf.bad-type"


@pytest.mark.parametrize(
    ("kind", "sizes", "why"),
    [(12, (100, 2), "gguf.bad-row"), (0, (1 << 40, 1 << 40), "gguf.bad-count"), (99, (32, 2), "gguf.bad-type")],
)
def test_unknown_types_and_odd_rows_are_refused(tmp_path: Path, kind: int, sizes: tuple[int, int], why: str) -> None:
    info = struct.pack("<Q", 1) + b"t" + struct.pack("<IQQIQ", 2, *sizes, kind, 0)
    assert _why(write(tmp_path / "m.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info + bytes(64))).id == why


def test_not_a_gguf_and_no_file(tmp_path: Path) -> None:
    assert _why(write(tmp_path / "m.gguf", b"PK\3\4 and so on")).id == "gguf.not-gguf"
    with pytest.raises(UsageError) as caught:
        read_gguf(tmp_path / "none.gguf")
    assert caught.value.kind == "file-unreadable"


def test_long_texts_and_half_a_million_tokens_are_passed_over(tmp_path: Path) -> None:
    metadata = LLAMA | {"tokenizer.ggml.tokens": ["token"] * 300_000, "tokenizer.chat_template": "x" * 100_000}
    path = write(tmp_path / "m.gguf", gguf_bytes(metadata))
    header = read_header(path)
    assert header.lengths["tokenizer.ggml.tokens"] == 300_000
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert "tokenizer.chat_template" not in header.metadata


def test_parts_of_a_split_file_count_together(tmp_path: Path) -> None:
    first = {name: tensor for name, tensor in TENSORS.items() if name.startswith("token")}
    second = {name: tensor for name, tensor in TENSORS.items() if name not in first}
    path = write(tmp_path / "m-00001-of-00002.gguf", gguf_bytes(LLAMA | {"split.count": 2, "split.no": 0}, first))
    with pytest.raises(UsageError) as caught:
        read_gguf(path)
    assert "m-00002-of-00002.gguf" in str(caught.value.message.values["path"])
    write(tmp_path / "m-00002-of-00002.gguf", gguf_bytes({"split.count": 2, "split.no": 1}, second))
    assert read_gguf(path)[1] == {"Q6_K": 32 * 210, "F32": 2 * 1024, "Q4_K": (256 + 128) * 144}
    with pytest.raises(UsageError):
        read_gguf(path.rename(tmp_path / "renamed.gguf"))


def _filled(number: int) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Every matrix of the layers in one type; the embedding stays Q6_K and the norms F32."""
    return {
        name: (number if name.startswith("blk.") and len(sizes) > 1 else kind, sizes) for name, (kind, sizes) in TENSORS.items()
    }


@pytest.mark.parametrize(
    ("number", "file_type", "precision"),
    [
        (8, 7, "q8_0"),
        (8, None, "q8_0"),
        (8, 15, "q8_0"),  # The file says q4_k_m, but no tensor is Q4_K.
        (1, 1, "f16"),
        (0, 0, "f32"),
        (30, 32, "bf16"),
        (12, 14, "q4_k_s"),
        (12, 15, "q4_k_m"),
        (12, None, "q4_k_m"),
        (39, 38, "mxfp4_moe"),
        (40, 39, "q4_k_m"),  # No precision of llama.cpp's is known for NVFP4 tensors of 4.5 bits: the nearest in size.
    ],
)
@pytest.mark.parametrize("name", ["mymodel.gguf", "x-Q4_K_M.gguf", "x-UD-Q8_K_XL.gguf", "sha256-12"])
def test_precision_is_that_of_the_tensors_whatever_the_name(
    tmp_path: Path, number: int, file_type: int | None, precision: str, name: str
) -> None:
    metadata = LLAMA if file_type is None else LLAMA | {"general.file_type": file_type}
    path = write(tmp_path / name, gguf_bytes(metadata, _filled(number)))
    shape = shape_at(path)
    workload = fill_defaults(Workload("serve", str(path)), shape)
    assert (workload.precision, workload.engine) == (precision, "llama.cpp")
    assert weight_bytes(shape, precision) == shape.stored_bytes == sum(read_gguf(path)[1].values())


def test_decode_reads_the_bytes_of_the_files_own_mixture_of_types(tmp_path: Path) -> None:
    """A mixture that no rule of llama.cpp makes (dynamic quantisation): Q2_K queries, F16 keys, Q8_0 in the MLP."""
    tensors = TENSORS | {"blk.0.attn_q.weight": (10, (256, 256)), "blk.0.attn_k.weight": (1, (256, 128)),
                         "blk.0.ffn_down.weight": (8, (512, 256))}  # fmt: skip
    shape, _ = read_gguf(write(tmp_path / "m-UD-Q2_K_XL.gguf", gguf_bytes(LLAMA | {"general.file_type": 10}, tensors)))
    assert shape.native == "q2_k"
    storage = weight_storage(shape, "q2_k", "fp16")
    assert [storage.weight(role) for role in ("attn_q", "attn_k", "ffn_down")] == [84 / 256, 2.0, 34 / 32]
    assert storage.head == 210 / 256  # The tied embedding's Q6_K.
    assert weight_storage(shape, "q8_0", "fp16").weight("attn_q") == 34 / 32  # Requantised, it has the rule's types.


def test_a_header_without_tensors_is_no_model(tmp_path: Path) -> None:
    assert _why(write(tmp_path / "vocabulary.gguf", gguf_bytes(LLAMA, {}))).id == "gguf.no-weights"


def _read(folder: Path, changes: dict[str, Any]) -> Transformer:
    """A llama's metadata with changes; keys without an architecture get the new one's."""
    name = changes.get("general.architecture", "llama")
    merged = {key.removeprefix("llama."): value for key, value in LLAMA.items()} | changes
    prefixes = ("general.", "tokenizer.")
    metadata = {key if key.startswith(prefixes) else f"{name}.{key}": value for key, value in merged.items()}
    return read_gguf(write(folder / "m.gguf", gguf_bytes(metadata)))[0]


def _why(path: Path) -> Message:
    with pytest.raises(UsageError) as caught:
        read_gguf(path)
    assert caught.value.kind == "bad-gguf"
    why = caught.value.message.values["why"]
    assert isinstance(why, Message)
    return why


@pytest.mark.parametrize(("arrays", "texts"), [(1, 3_000_000), (4, 900_000)])
def test_millions_of_texts_are_refused(tmp_path: Path, arrays: int, texts: int) -> None:
    def array(number: int) -> bytes:
        key = b"tokens%d" % number
        return struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, texts) + (struct.pack("<Q", 1) + b"x") * texts

    data = b"GGUF" + struct.pack("<IQQ", 3, 0, arrays) + b"".join(map(array, range(arrays)))
    path = write(tmp_path / "m.gguf", data)
    began = process_time()
    assert _why(path).id == "gguf.bad-count"
    assert process_time() - began < 1.0


SMALL: dict[str, tuple[int, tuple[int, ...]]] = {
    "blk.0.attn_norm.weight": (0, (256,)),
    "blk.3.attn_q.weight": (0, (32,)),
    "blk.3.attn_q_norm.weight": (0, (32,)),
}
SMALL_UNTIED = {**SMALL, "output.weight": (0, (32,))}


@pytest.mark.parametrize(
    ("model", "architecture", "interval"), [("qwen3-next-80b-a3b", "qwen3next", 4), ("qwen3.5-35b-a3b", "qwen35moe", 4)]
)
def test_hybrid_decoders_have_the_parameters_of_their_configs(
    tmp_path: Path, model: str, architecture: str, interval: int, catalog: Catalog
) -> None:
    original = find_model(model, catalog)
    assert isinstance(original, Transformer)
    assert original.experts is not None
    mixer = original.recurrent
    assert mixer is not None
    sizes = {
        "block_count": original.layers, "embedding_length": original.hidden, "context_length": original.max_context,
        "attention.head_count": original.heads, "attention.head_count_kv": original.kv_heads,
        "attention.key_length": original.head_dim, "feed_forward_length": original.ffn, "vocab_size": original.vocab,
        "expert_count": original.experts.count, "expert_used_count": original.experts.active,
        "expert_feed_forward_length": original.experts.ffn,
        "expert_shared_feed_forward_length": original.experts.shared_ffn,
        "ssm.conv_kernel": mixer.conv_taps, "ssm.state_size": mixer.key_dim, "ssm.time_step_rank": mixer.heads,
        "ssm.group_count": (mixer.conv_channels - mixer.outward) // (2 * mixer.key_dim), "ssm.inner_size": mixer.outward,
        "full_attention_interval": interval,
    }  # fmt: skip
    metadata = {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in sizes.items()}
    shape, _ = read_gguf(write(tmp_path / "m.gguf", gguf_bytes(metadata, SMALL_UNTIED)))
    unstated = replace(mixer, state_bytes=None)  # A GGUF file states no type of the states.
    assert (shape.pattern, shape.recurrent, shape.experts) == (original.pattern, unstated, original.experts)
    assert count_parameters(shape).total == count_parameters(original).total - original.other


def test_layers_without_kv_heads_are_recurrent(tmp_path: Path) -> None:
    short = {"general.architecture": "lfm2", "block_count": 4, "attention.head_count_kv": [0, 0, 4, 0], "shortconv.l_cache": 3}
    assert _read(tmp_path, short).pattern == "RRAR"
    mamba = {"general.architecture": "granitehybrid", "block_count": 4, "attention.head_count_kv": [0, 0, 0, 4],
             "ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 1, "ssm.time_step_rank": 16,
             "ssm.inner_size": 512}  # fmt: skip
    shape = _read(tmp_path, mamba)
    assert shape.pattern == "RRRA"
    assert shape.recurrent is not None
    assert (shape.recurrent.heads, shape.recurrent.key_dim, shape.recurrent.value_dim) == (16, 128, 32)
