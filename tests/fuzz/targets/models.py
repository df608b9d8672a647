"""Files that describe models, from strangers: config.json, GGUF, safetensors and its index."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from typing import Any, cast

from hypothesis import strategies as st

from tests.configs import KEYS, TYPES, configs
from tests.fuzz.target import Target
from tests.fuzz.targets.draws import as_json, documents, from_file, room
from tests.model_files import LLAMA, TENSORS, gguf_bytes, safetensors_bytes
from whichgpu.workload.hf import shape_from_config
from whichgpu.workload.model_files.bounded_read import parse_config
from whichgpu.workload.model_files.gguf import read_gguf
from whichgpu.workload.model_files.gguf_header import TYPES as GGUF_TYPES
from whichgpu.workload.model_files.safetensors import DTYPES, read_safetensors
from whichgpu.workload.models import find_model
from whichgpu.workload.parameters import count_parameters
from whichgpu.workload.shapes import TracedShape

NORMS = {name: entry for name, entry in TENSORS.items() if len(entry[1]) == 1}  # small, so that a whole file is drawn


class _NoModels:
    models = ()


def _config(data: bytes) -> Hashable:
    shape = shape_from_config(parse_config(data, "config.json"), "any")
    if isinstance(shape, TracedShape):
        return "traced"
    counted = count_parameters(shape)
    assert counted.total >= counted.active >= 0, counted
    return type(shape).__name__, getattr(shape, "kind", None), bool(getattr(shape, "experts", None))


def _index(data: bytes) -> Hashable:
    """An index next to two files it may name."""
    for name in ("a.safetensors", "b.safetensors"):
        path = room() / name
        if not path.exists():
            path.write_bytes(safetensors_bytes())
    path = room() / "model.safetensors.index.json"
    path.write_bytes(data)
    return type(read_safetensors(path)).__name__


def _folder(data: bytes) -> Hashable:
    """A model folder: the first byte says which of its files the rest is."""
    folder = room() / "folder"
    folder.mkdir(exist_ok=True)
    names = ("config.json", "model.safetensors", "model.safetensors.index.json", "m.gguf", "pytorch_model.bin", "modeling.py")
    for name in names:
        if os.path.exists(folder / name):
            os.unlink(folder / name)
    (folder / names[(data[0] if data else 0) % len(names)]).write_bytes(data[1:])
    return type(find_model(str(folder), cast("Any", _NoModels()))).__name__


sizes = st.sampled_from([0, 1, 2, 32, 256, 4096, 2**31, 2**56, 2**63])
metadata = st.dictionaries(
    st.sampled_from([*LLAMA, "general.alignment", "llama.expert_count", "split.count", "llama.attention.key_length"]),
    st.integers(0, 2**63) | st.floats(width=32) | st.booleans() | st.text(max_size=8) | st.lists(st.integers(0, 999), max_size=5),
    max_size=5,
)
tensors = st.dictionaries(
    st.sampled_from([*TENSORS, "output.weight", "blk.99.ffn_up_exps.weight", "x"]),
    st.tuples(st.sampled_from([0, 1, 12, 14, 39]), st.lists(st.sampled_from([0, 1, 2, 32, 256]), max_size=2).map(tuple)),
    max_size=4,
)
ggufs = st.builds(lambda more, other: gguf_bytes({**LLAMA, **more}, {**NORMS, **other})[:6000], metadata, tensors)
entries = st.dictionaries(
    st.text(max_size=5),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from([*DTYPES, "F128", ""]) | st.integers(),
            "shape": st.lists(sizes | st.integers(-1, 9) | st.none(), max_size=5),
            "data_offsets": st.lists(st.integers(-1, 2**64) | st.floats(), max_size=3),
        }
    )
    | documents(("dtype", "shape", "data_offsets"), 4),
    max_size=4,
)
heads = entries.map(lambda value: json.dumps(value).encode())
files = st.builds(
    lambda head, off, rest: (len(head) + off).to_bytes(8, "little") + head + rest,
    heads,
    st.sampled_from([0] * 8 + [1, -1, 2**40]),
    st.binary(max_size=20),
)

TARGETS = (
    Target(
        "configs",
        _config,
        as_json(configs),
        (*tuple(f'"{key}":'.encode() for key in KEYS), *(f'"{kind}"'.encode() for kind in TYPES), b'"model_type":'),
    ),
    Target(
        "gguf",
        from_file("m.gguf", read_gguf),
        ggufs,
        (
            b"GGUF",
            *(number.to_bytes(4, "little") for number in (*GGUF_TYPES, 8, 9)),
            *(n.to_bytes(8, "little") for n in (0, 1, 2**32, 2**63)),
            b"general.architecture",
            b"llama.block_count",
            b"split.count",
        ),
    ),
    Target(
        "safetensors",
        from_file("m.safetensors", read_safetensors),
        files,
        (b'"dtype"', b'"BF16"', b'"shape"', b'"data_offsets"', b"[0,64]"),
    ),
    Target(
        "safetensors-index",
        _index,
        as_json(
            st.fixed_dictionaries(
                {
                    "weight_map": st.dictionaries(
                        st.text(max_size=4),
                        st.sampled_from(
                            [
                                "a.safetensors",
                                "b.safetensors",
                                "../a.safetensors",
                                "/etc/passwd",
                                "c.safetensors",
                                "a.bin",
                                "",
                                ".",
                            ]
                        )
                        | documents(("x",), 2),
                    )
                }
            )
        ),
        (b'"weight_map"', b"../", b"/etc/", b".safetensors", b"a.safetensors"),
    ),
    Target(
        "model-folders",
        _folder,
        st.binary(max_size=80) | as_json(configs).map(lambda data: b"\0" + data),
        (b"\0{", b"\3GGUF", b"auto_map"),
    ),
)
