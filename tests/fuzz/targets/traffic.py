"""Requests: traces of them, lines of `estimate --requests`, profiles of measured traffic."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache

from hypothesis import strategies as st

from tests.configs import KEYS, configs
from tests.fuzz.target import Rude, Target, refusal
from tests.fuzz.targets.draws import as_json, documents, from_file, objects, scalars
from whichgpu.api.workloads.stream import estimate_requests
from whichgpu.base.codec import to_json_line
from whichgpu.base.messages import english
from whichgpu.catalog.engines.registry import engine_ids
from whichgpu.catalog.store import Catalog
from whichgpu.decide.plan.profiles import read_profiles
from whichgpu.surface.commands.request_lines import reply_document
from whichgpu.workload.parallel import LAYOUT_FIELDS
from whichgpu.workload.precisions import PRECISIONS
from whichgpu.workload.tasks import TASKS
from whichgpu.workload.traces.reader import COLUMN_ALIASES, SHAPES, read_trace
from whichgpu.workload.workload import KINDS

COLUMNS = sorted(
    {name for shape in SHAPES for name in (shape.time, shape.prompt, shape.output, shape.hashes) if name}
    | {name for names in COLUMN_ALIASES.values() for name in names}
)
GOOD = {"task": "decode", "model": "llama-3.1-8b", "gpu": "H200 SXM", "batch": 4, "seq_in": 2048}


@cache
def _catalog() -> Catalog:
    return Catalog()


def _requests(data: bytes) -> Hashable:
    """Lines as the command reads them; a reply each, that can be written out, and no fault of ours among them."""
    lines = data.split(b"\n")[:4]
    counts = []
    for reply in estimate_requests(lines, _catalog(), own=False):
        if (reply.answer is None) == (reply.error is None):
            raise Rude(f"line {reply.line}: neither an answer nor an error")
        json.loads(to_json_line(reply_document(reply, english())))
        counts.append(refusal(reply.error) if reply.error else _kind(reply.answer))
    if len(counts) != sum(bool(line.strip()) for line in lines):
        raise Rude(f"{len(counts)} replies")
    return tuple(counts[:1])


def _kind(answer: object) -> Hashable:
    warnings = getattr(answer, "warnings", ())
    return "answer", getattr(answer, "fits", None), tuple(sorted({one.id for one in warnings}))


cells = st.integers(0, 5000).map(str) | st.sampled_from(
    ["2023-11-16 18:15:46.6805900", "0.5", "", "nan", "-1", "1e400", "[1,2]", '"a']
)
rows = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6))
tables = st.builds(
    lambda header, body: "\n".join(",".join(row) for row in [header, *body]).encode(),
    st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4),
    rows,
)
records = st.lists(
    st.dictionaries(st.sampled_from(COLUMNS), scalars | st.lists(scalars, max_size=3), max_size=5), max_size=5
).map(lambda lines: "\n".join(map(json.dumps, lines)).encode())
fields = st.fixed_dictionaries(
    {},
    optional={
        "task": st.sampled_from(TASKS),
        "precision": st.sampled_from(PRECISIONS),
        "engine": st.sampled_from(engine_ids()),
        "gpu": st.sampled_from(["H100 SXM", "T4", "MI300X", "RTX 4090", "8xA100-SXM-80GB", "M3 Max", "V100 SXM 16GB"]),
        "model": st.sampled_from(
            ["resnet50", "bert-base", "llama-3.1-70b", "mixtral-8x7b", "mlp:8x16x2", "t5-base", "dlrm", "vit-base"]
        )
        | configs,
        "gpus": st.integers(1, 16),
        "batch": st.integers(1, 4096),
        "seq_in": st.integers(1, 9000),
        "seq_out": st.integers(1, 999),
        "parallel": st.dictionaries(st.sampled_from(sorted(LAYOUT_FIELDS)), st.sampled_from([0, 1, 2, 4, 8, True]), max_size=4),
    },
)
requests = st.builds(
    lambda plausible, wild, both: {**GOOD, **plausible, **(wild if both else {})}, fields, objects(tuple(KINDS)), st.booleans()
)

TARGETS = (
    Target(
        "traces-csv",
        from_file("trace.csv", read_trace),
        tables,
        (*tuple(name.encode() for name in COLUMNS), b",", b"\n", b"2023-11-16"),
    ),
    Target("traces-jsonl", from_file("trace.jsonl", read_trace), records, tuple(f'"{name}":'.encode() for name in COLUMNS)),
    Target(
        "requests",
        _requests,
        as_json(requests),
        tuple(f'"{name}":'.encode() for name in (*KINDS, *KEYS[:30]))
        + tuple(f'"{word}"'.encode() for word in (*TASKS, *engine_ids(), *PRECISIONS)),
        seconds=6.0,
    ),
    Target(
        "profiles",
        from_file("profiles.json", read_profiles),
        as_json(
            objects(
                ("gpus", "mix", "rate", "gpu_info", "workload_distribution", "indexes(out,in)"),
                {"mix": [1, 2], "gpus": {"a": {"price": 1, "requests_per_second": [1, 2]}}},
            )
            | documents(("gpus", "mix", "price"))
        ),
        (b'"mix"', b'"gpus"', b'"price"', b'"requests_per_second"', b'"gpu_info"', b'"tputs"', b'"indexes(out,in)"'),
    ),
)
