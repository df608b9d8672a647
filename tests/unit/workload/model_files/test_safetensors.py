"""A safetensors file's header gives its weights and bytes; a damaged one is an error that says what is wrong."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tests.model_files import safetensors_bytes, write
from whichgpu.base.errors import UsageError
from whichgpu.base.messages import Message
from whichgpu.workload.model_files.safetensors import MAX_HEADER_BYTES, read_safetensors
from whichgpu.workload.shapes import WeightsOnly


def test_weights_and_bytes_are_counted(tmp_path: Path) -> None:
    assert read_safetensors(write(tmp_path / "m.safetensors", safetensors_bytes())) == WeightsOnly("m.safetensors", 41, 79)


def test_a_file_without_tensors_is_no_model(tmp_path: Path) -> None:
    assert _why(write(tmp_path / "m.safetensors", safetensors_bytes({}))).id == "safetensors.no-weights"


def test_an_index_counts_all_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", safetensors_bytes({"x": ("F16", [10], 20)}))
    write(tmp_path / "b.safetensors", safetensors_bytes({"y": ("F8_E4M3", [10, 2], 20)}))
    index = {"metadata": {"total_size": 40}, "weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "b.safetensors"}}
    path = write(tmp_path / "model.safetensors.index.json", json.dumps(index).encode())
    counted = read_safetensors(path)
    assert (counted.parameters, counted.weight_bytes) == (30, 40)


@pytest.mark.parametrize("shard", ["../a.safetensors", "/etc/passwd", "a.bin", 5])
def test_an_index_names_only_its_neighbours(tmp_path: Path, shard: object) -> None:
    path = write(tmp_path / "model.safetensors.index.json", json.dumps({"weight_map": {"x": shard}}).encode())
    assert _why(path).id == "safetensors.bad-shard"


def test_a_missing_neighbour_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors.index.json", b'{"weight_map": {"x": "gone.safetensors"}}')
    with pytest.raises(UsageError) as caught:
        read_safetensors(path)
    assert "gone.safetensors" in str(caught.value.message.values["path"])


def test_truncated_file_error_names_the_missing_part(tmp_path: Path) -> None:
    whole = safetensors_bytes()
    for length in range(len(whole)):
        assert _why(write(tmp_path / "m.safetensors", whole[:length])).id == "safetensors.cut"


def test_a_header_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    data = struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}"
    assert _why(write(tmp_path / "m.safetensors", data)).id == "safetensors.bad-length"


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"dtype": "F17", "shape": [1], "data_offsets": [0, 2]}, "dtype"),
        ({"dtype": "F16", "shape": [-1], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "F16", "shape": [1.5], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "F16", "shape": [10**30], "data_offsets": [0, 2]}, "shape"),
        ({"dtype": "F16", "shape": [1], "data_offsets": [0]}, "data_offsets"),
        ({"dtype": "F16", "shape": [2], "data_offsets": [0, 2]}, "data_offsets"),
        ([], "entry"),
    ],
)
def test_a_wrong_tensor_is_named(tmp_path: Path, entry: Any, key: str) -> None:
    text = json.dumps({"t": entry}).encode()
    why = _why(write(tmp_path / "m.safetensors", struct.pack("<Q", len(text)) + text + bytes(8)))
    assert (why.id, why.values["name"], why.values["key"]) == ("safetensors.bad-tensor", "t", key)


@pytest.mark.parametrize(("text", "id"), [(b"[1]", "not-object"), (b"{", "not-json"), (b"\xff\xfe", "not-json")])
def test_header_that_is_no_json_object_is_refused(tmp_path: Path, text: bytes, id: str) -> None:
    path = write(tmp_path / "m.safetensors", struct.pack("<Q", len(text)) + text)
    assert _why(path).id == f"safetensors.{id}"


def _why(path: Path) -> Message:
    with pytest.raises(UsageError) as caught:
        read_safetensors(path)
    assert caught.value.kind == "bad-safetensors"
    why = caught.value.message.values["why"]
    assert isinstance(why, Message)
    return why


def test_a_million_tensors_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    header = b"{" + b",".join(b'"t%d":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}' % at for at in range(1_000_000)) + b"}"
    path = write(tmp_path / "m.safetensors", struct.pack("<Q", len(header)) + header + bytes(2))
    index = b'{"weight_map":{' + b",".join(b'"t%d":"m.safetensors"' % at for at in range(1_000_000)) + b"}}"
    for refused in (path, write(tmp_path / "model.safetensors.index.json", index)):
        tracemalloc.start()
        began = process_time()
        assert _why(refused).id == "safetensors.bad-count"
        assert process_time() - began < 1.0
        assert tracemalloc.get_traced_memory()[1] < 200e6
        tracemalloc.stop()
