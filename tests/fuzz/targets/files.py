"""Files of the user's own: plans, terms laid over prices, settings, price lists, records of measurements."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from collections.abc import Hashable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.target import Rude, Target
from tests.fuzz.targets.draws import as_json, as_toml, documents, from_file, objects, room, scalars
from whichgpu.api.plan.plan_file import FILTERS, TOP, TRAFFIC, read_plan
from whichgpu.api.prices.store import catalog_import
from whichgpu.catalog.live.overlay import CONTRACT, OWNED, apply_overlay, read_overlay
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.calibration import load_calibration
from whichgpu.measure.record import digest_of
from whichgpu.measure.records import import_record
from whichgpu.surface.cli.settings import SHARED, read_config
from whichgpu.workload.workload import KINDS

TODAY = date(2026, 11, 15)
OPTIONS = {"gpus": ("min_memory", "sort"), "fit": tuple(KINDS), "plan": TOP, "offers": FILTERS}


@cache
def _catalog() -> Catalog:
    return Catalog()


def _terms(path: Path) -> object:
    overlay = read_overlay(path, _catalog(), TODAY)
    apply_overlay((), overlay, TODAY)
    return overlay


def _prices(ending: str) -> Any:
    """Import into a store of its own; what cannot be read is an outcome of that file, not an error."""

    def feed(data: bytes) -> Hashable:
        folder = room() / "store"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = room() / f"list{ending}"
        path.write_bytes(data)
        answer = catalog_import(path, catalog=_catalog(), today=TODAY, folder=folder)
        if answer.prices != answer.kept + answer.quarantined + answer.unknown:
            raise Rude("counts that do not add up")
        problems = tuple(row.problem.id for row in answer.snapshots if row.problem)
        return problems, tuple(sorted(answer.reasons)), bool(answer.kept)

    return feed


def _record(data: bytes) -> Hashable:
    """A record as it is, and once more with the sum its content has."""
    path = room() / "record.json"
    try:
        document = json.loads(data)
        if isinstance(document, dict):
            document["digest"] = digest_of(document)
            data = json.dumps(document).encode()
    except (ValueError, RecursionError):
        pass
    path.write_bytes(data)
    record = import_record(path, _catalog(), load_calibration(), TODAY, room() / "records")
    return record.where.gpu, len(record.steps)


def _zip(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in dict(members).items():
            archive.writestr(zipfile.ZipInfo(name or "x"), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)) or ["gpu"])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


LIST = (
    "provider",
    "instance",
    "region",
    "gpu",
    "gpus",
    "term",
    "payment",
    "price",
    "currency",
    "upfront",
    "per",
    "discount",
    "observed",
    "last_observed",
    "includes",
)
HUNT = (
    "instance_name",
    "location",
    "price",
    "cpu",
    "memory",
    "gpu_vendor",
    "gpu_count",
    "gpu_name",
    "gpu_memory",
    "spot",
    "disk_size",
)
SKY = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "Price",
    "SpotPrice",
    "Region",
    "AvailabilityZone",
)
OWN_ROW = {"provider": "colo", "gpu": "L4", "price": "0.5"}
own = st.lists(objects(LIST, OWN_ROW), min_size=1, max_size=3)
hunts = st.lists(st.fixed_dictionaries(dict.fromkeys(HUNT, scalars.map(str))), min_size=1, max_size=3).map(_csv)
skies = st.lists(st.fixed_dictionaries(dict.fromkeys(SKY, scalars.map(str))), min_size=1, max_size=3).map(_csv)
archives = st.lists(
    st.tuples(
        st.sampled_from(["aws.csv", "../../x.csv", "/etc/y.csv", "a/b.csv", "note.txt", ".csv"]), hunts | st.binary(max_size=60)
    ),
    max_size=3,
).map(_zip)
plans = objects((*TOP, *FILTERS), {"model": [{"name": "llama-3.1-8b", "rate": "5/s"}]}) | st.fixed_dictionaries(
    {"model": st.lists(objects(("name", *KINDS, *TRAFFIC), {"name": "llama-3.1-8b"}), max_size=2)},
    optional={
        "job": st.lists(objects(("name", "deadline", *KINDS)), max_size=2),
        "owned": documents(("gpu", "gpus", "power_cost")),
        "quota": documents(("H100 SXM", "A100")),
    },
)
terms = st.fixed_dictionaries(
    {},
    optional={
        "discounts": st.dictionaries(st.sampled_from(["aws", "gcp", "Google Cloud", "x"]), scalars, max_size=3) | scalars,
        "contract": st.lists(objects(CONTRACT, {"provider": "aws", "gpu": "L4", "price": "1 usd/h"}), max_size=2) | scalars,
        "owned": st.lists(objects(OWNED, {"gpu": "L4", "cost": "1 usd/h"}), max_size=2) | scalars,
    },
)
settings = objects((*SHARED, *OPTIONS)) | st.fixed_dictionaries({"fit": objects(tuple(KINDS))})
recorded = objects(("format", "made", "where", "micros", "steps", "fitted", "digest", "version", "software", "notes", "gpu"))


def _quoted(*names: str) -> tuple[bytes, ...]:
    return tuple(f'"{name}"'.encode() for name in names)


TARGETS = (
    Target(
        "plans",
        from_file("plan.toml", read_plan),
        as_toml(plans),
        (
            *(f"{name} = ".encode() for name in (*TOP, *FILTERS, *TRAFFIC, *KINDS)),
            b"[[model]]\n",
            b"[[job]]\n",
            b"[quota]\n",
            b"1979-05-27",
        ),
    ),
    Target(
        "terms",
        from_file("prices.toml", _terms),
        as_toml(terms),
        (
            *(f"{name} = ".encode() for name in (*CONTRACT, *OWNED)),
            b"[discounts]\n",
            b"[[contract]]\n",
            b"[[owned]]\n",
            b"usd/h",
            b"07:32:00",
        ),
    ),
    Target(
        "settings",
        from_file("config.toml", lambda path: read_config(path, OPTIONS)),
        as_toml(settings),
        (*(f"{name} = ".encode() for name in SHARED), b"[gpus]\n", b"[fit]\n"),
    ),
    Target(
        "prices-csv",
        _prices(".csv"),
        own.map(_csv) | hunts | skies,
        (*tuple(name.encode() for name in (*LIST, *HUNT, *SKY)), b","),
    ),
    Target("prices-json", _prices(".json"), as_json(own | documents(LIST)), _quoted(*LIST)),
    Target(
        "prices-zip",
        _prices(".zip"),
        archives | st.binary(max_size=60),
        (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b".csv", b"../"),
    ),
    Target("prices-gzip", _prices(".csv.gz"), st.binary(max_size=60), (b"\x1f\x8b\x08",)),
    Target(
        "records",
        _record,
        as_json(recorded),
        _quoted("format", "where", "steps", "micros", "gpu", "seconds", "case", "fitted"),
        seconds=10.0,
    ),
)
