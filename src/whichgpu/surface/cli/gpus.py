"""`whichgpu gpus`: specs."""

from __future__ import annotations

from functools import partial

import click

from whichgpu import api
from whichgpu.base.messages import Message, msg
from whichgpu.base.units import format_bandwidth, format_flops, parse_bandwidth, parse_bytes
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.schema import schema
from whichgpu.catalog.select import GpuFilter, parse_capability
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.frame import GPU, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources, say_where_from
from whichgpu.surface.fields import field_named

USUAL = ("name", "memory_bytes", "memory_bandwidth", "peaks.fp16", "tdp_watts", "launch_date")


def _choices(column: str) -> tuple[str, ...]:
    return schema()["gpus"][column].choices


def _architectures() -> list[str]:
    return sorted({gpu.architecture for gpu in Catalog().gpus})


def _features() -> list[str]:
    return sorted({feature for gpu in Catalog().gpus for feature in gpu.supports})


@command("gpus", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, type=GPU, metavar="[NAME…]")
@option("--vendor", type=Words("vendor", partial(_choices, "vendor")), metavar="NAME")
@option("--arch", type=Words("architecture", _architectures), metavar="NAME")
@option("--min-memory", type=Parsed("size", parse_bytes), metavar="SIZE")
@option("--min-bandwidth", type=Parsed("bandwidth", parse_bandwidth), metavar="RATE")
@option("--supports", type=Words("feature", _features, many=True), metavar="FEATURES", default=None)
@option("--compute-capability", type=Parsed("capability", parse_capability), metavar="N.N[+]")
@option("--form-factor", type=Words("form-factor", partial(_choices, "form_factor")), metavar="NAME")
@option("--sort", metavar="FIELD")
def gpus(session: Session, names: tuple[str, ...], sort: str | None, supports: tuple[str, ...] | None, **wanted: object) -> None:
    """List GPUs, or every fact about one."""
    filter = GpuFilter(**wanted, supports=supports or (), as_of=session.as_of)  # type: ignore[arg-type]
    catalog = catalog_of(session)
    answer = api.gpus(names, filter, field_named(sort, Gpu, session.language), catalog)
    if names and len(answer.gpus) == 1:
        gpu = answer.gpus[0]
        session.show_one(answer, gpu, _sentence(gpu))
        say_sources(session, answer.sources)
    else:
        session.show(answer, answer.gpus, USUAL, msg("gpus.count", n=len(answer.gpus)))
        say_where_from(session, answer.gpus, answer.sources)


def _sentence(gpu: Gpu) -> Message:
    fastest = next((dtype for dtype in ("bf16", "fp16", "fp32", "int8") if dtype in gpu.peaks), None)
    return msg(
        "gpus.sentence" if fastest else "gpus.sentence-no-rate",
        name=gpu.name,
        memory=gpu.memory_label,
        type=gpu.memory_type,
        bandwidth=format_bandwidth(gpu.memory_bandwidth),
        rate=format_flops(gpu.peaks[fastest]) if fastest else "",
        dtype=fastest or "",
        launched=gpu.launch_date,
    )
