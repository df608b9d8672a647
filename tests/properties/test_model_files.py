"""No file or config, however damaged, makes the parsers fail other than with our errors, or take much memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.configs import configs, plausible, values
from tests.examples import examples
from tests.model_files import gguf_bytes, safetensors_bytes
from whichgpu.base.errors import WhichGpuError
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.model_files.gguf import read_gguf
from whichgpu.workload.model_files.safetensors import read_safetensors
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import TracedShape

MAX_BYTES = 16 << 20  # bytes the readers may take for a file of some kilobytes
FILES: tuple[tuple[str, bytes, Callable[[Path], object]], ...] = (
    ("m.gguf", gguf_bytes(), read_gguf),
    ("m.safetensors", safetensors_bytes(), read_safetensors),
    ("model.safetensors.index.json", b'{"metadata":{},"weight_map":{"a":"m.safetensors"}}', read_safetensors),
)
HEAD = 1100  # bytes: the interesting part of the files above


@pytest.mark.parametrize(("name", "whole", "read"), FILES, ids=[name for name, _, _ in FILES])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
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
@settings(max_examples=examples(150))
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
    _politely(partial(find_model, str(path), cast("Any", _Empty())))


@given(st.text(max_size=60), st.sampled_from(["", "hf:", "mlp:", "python:", "./", "hf:org/", "mlp:3x"]))
def test_any_model_name_is_politely_refused(text: str, prefix: str) -> None:
    _politely(partial(find_model, (prefix + text).replace("hf:", "hf:!"), cast("Any", _Empty())))


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
    models = repositories = ()


def _refused_politely(path: Path, content: bytes, read: Callable[[Path], object]) -> None:
    path.write_bytes(content)
    tracemalloc.start()
    try:
        _politely(partial(read, path))
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def _counted_or_refused(config: dict[str, Any]) -> None:
    def count() -> None:
        shape = shape_from_config(config, "any")
        if not isinstance(shape, TracedShape):
            assert count_parameters(shape).total >= 0

    _politely(count)


def _politely(act: Callable[[], object]) -> None:
    try:
        act()
    except WhichGpuError as error:
        assert error.exit_code == 2
        assert error.hint is not None
