"""No file and no config, however damaged, makes the readers fail otherwise than politely, or take much memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model_files import gguf_bytes, safetensors_bytes
from whichgpu.base.errors import WhichGpuError
from whichgpu.workload.gguf import read_gguf
from whichgpu.workload.hf import READERS, shape_from_config
from whichgpu.workload.hf.families import FAMILIES, SAME
from whichgpu.workload.hf.towers import TOWERS
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.safetensors import read_safetensors
from whichgpu.workload.shapes import Traced

MOST = 16 << 20  # bytes the readers may take for a file of some kilobytes
FILES: tuple[tuple[str, bytes, Callable[[Path], object]], ...] = (
    ("m.gguf", gguf_bytes(), read_gguf),
    ("m.safetensors", safetensors_bytes(), read_safetensors),
    ("model.safetensors.index.json", b'{"metadata":{},"weight_map":{"a":"m.safetensors"}}', read_safetensors),
)
HEAD = 1100  # bytes: the interesting part of the files above

KEYS = (
    "hidden_size n_embd d_model intermediate_size n_inner ffn_dim d_ff num_hidden_layers n_layer num_layers encoder_layers "
    "decoder_layers num_attention_heads n_head num_heads num_key_value_heads head_dim d_kv vocab_size max_position_embeddings "
    "n_positions num_local_experts n_routed_experts num_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
    "shared_expert_intermediate_size first_k_dense_replace decoder_sparse_step mlp_only_layers kv_lora_rank q_lora_rank "
    "qk_nope_head_dim qk_rope_head_dim v_head_dim sliding_window use_sliding_window layer_types sliding_window_pattern "
    "rope_scaling attention_bias tie_word_embeddings hidden_act architectures id2label image_size patch_size num_channels "
    "text_config vision_config thinker_config attn_config ffn_config decoder_ffn_dim decoder_attention_heads "
    "max_target_positions projection_dim feed_forward_proj pos_att_type relative_attention position_buckets tables bottom top "
    "embedding_dim table image resid_pdrop multi_query new_decoder_architecture word_embed_proj_dim expansion_ratio depth "
    "embed_dim mlp_ratio deepstack_visual_indexes"
).split()
TYPES = sorted({*READERS, *FAMILIES, *SAME, *TOWERS, "dlrm", "traced", "mixtral", "deepseek_v3", "dbrx", "novel"})
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 4096), st.sampled_from([10**30, -(10**30), 2**63, 128, 64, 8]),
    st.floats(), st.text(max_size=8), st.sampled_from(["gelu", "gated-gelu", "full_attention", "linear_attention", "yarn"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*KEYS, "model_type", "type", "factor"]), inner, max_size=6)
    ),
    max_leaves=12,
)
sizes = st.sampled_from([1, 2, 4, 8, 16, 64, 128, 256])
plausible = st.fixed_dictionaries(
    dict.fromkeys(("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"), sizes)
)
configs = st.builds(
    lambda kind, base, wild: {"model_type": kind} | base | wild,
    st.sampled_from(TYPES),
    st.one_of(plausible, st.just({})),
    st.dictionaries(st.sampled_from(KEYS), values, max_size=10),
)


@pytest.mark.parametrize(("name", "whole", "read"), FILES, ids=[name for name, _, _ in FILES])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_damaged_files_are_read_or_politely_refused(
    tmp_path: Path, name: str, whole: bytes, read: Callable[[Path], object], data: st.DataObject
) -> None:
    damaged = bytearray(whole)
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, min(HEAD, len(whole)) - 1), st.integers(0, 255)), max_size=6)):
        damaged[place] = byte
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(whole))) :]
    _refused_politely(tmp_path / name, bytes(damaged), read)


@pytest.mark.parametrize(("name", "whole", "read"), FILES, ids=[name for name, _, _ in FILES])
@given(data=st.binary(max_size=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_politely_refused(
    tmp_path: Path, name: str, whole: bytes, read: Callable[[Path], object], data: bytes
) -> None:
    for begin in (b"", whole[:8], whole[:24], whole[:60]):
        _refused_politely(tmp_path / name, begin + data, read)


@given(configs)
@settings(max_examples=600)
def test_any_config_is_read_or_politely_refused(config: dict[str, Any]) -> None:
    _counted_or_refused(config)


@given(configs, configs)
def test_any_nested_config_is_read_or_politely_refused(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    for key in ("text_config", "vision_config", "llm_config"):
        _counted_or_refused(outer | {key: inner})
        _counted_or_refused(outer | {"text_config": {}, key: inner})


@given(st.one_of(values, st.binary(max_size=200)))
def test_any_config_file_is_read_or_politely_refused(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    _politely(partial(find_model, str(path), _Empty()))


@given(st.text(max_size=60), st.sampled_from(["", "hf:", "mlp:", "python:", "./", "hf:org/", "mlp:3x"]))
def test_any_model_name_is_politely_refused(text: str, prefix: str) -> None:
    _politely(partial(find_model, (prefix + text).replace("hf:", "hf:!"), _Empty()))


@given(plausible, st.sampled_from(["num_hidden_layers", "intermediate_size", "vocab_size"]))
def test_a_larger_model_never_has_fewer_parameters(config: dict[str, int], key: str) -> None:
    heads = {"num_attention_heads": 1, "head_dim": 8, "num_key_value_heads": 1}
    for kind in ("llama", "qwen2", "gemma2", "phi", "gpt2"):
        small = count_parameters(shape_from_config({"model_type": kind} | config | heads, ""))
        large = count_parameters(shape_from_config({"model_type": kind} | config | heads | {key: config[key] * 2}, ""))
        assert small.total < large.total
        assert small.active <= small.total
        assert small.linear + small.embedding + small.norm <= small.total


class _Empty:
    models = ()


def _refused_politely(path: Path, content: bytes, read: Callable[[Path], object]) -> None:
    path.write_bytes(content)
    tracemalloc.start()
    try:
        _politely(partial(read, path))
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def _counted_or_refused(config: dict[str, Any]) -> None:
    def count() -> None:
        shape = shape_from_config(config, "any")
        if not isinstance(shape, Traced):
            assert count_parameters(shape).total >= 0

    _politely(count)


def _politely(act: Callable[[], object]) -> None:
    try:
        act()
    except WhichGpuError as error:
        assert error.exit_code == 2
        assert error.hint is not None
