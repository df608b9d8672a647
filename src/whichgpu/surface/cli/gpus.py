"""`whichgpu gpus`: specs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from whichgpu import api
from whichgpu.base.codec import Cell, flat
from whichgpu.base.messages import Message, msg
from whichgpu.base.names import unknown_word
from whichgpu.base.units import format_bandwidth, format_flops, parse_bandwidth, parse_bytes
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.schema import schema
from whichgpu.catalog.select import GpuFilter, parse_capability
from whichgpu.catalog.store import Catalog
from whichgpu.surface.cli.frame import GPU, Parsed, Words, catalog_of, command, option
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources, say_where_from
from whichgpu.surface.fields import field_named

RELATIVE = "relative."
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
@option("--relative-to", type=GPU, metavar="NAME")
def gpus(
    session: Session,
    names: tuple[str, ...],
    sort: str | None,
    supports: tuple[str, ...] | None,
    relative_to: str | None,
    **wanted: object,
) -> api.GpusAnswer:
    """GPUs, and their speed against one of them where that is asked for."""
    filter = GpuFilter(**wanted, supports=supports or (), as_of=session.as_of)  # type: ignore[arg-type]
    catalog = catalog_of(session)
    by_speed = relative_to is not None and (sort or "").lstrip("-").startswith(RELATIVE)
    answer = api.gpus(names, filter, None if by_speed else field_named(sort, Gpu, session.language), catalog)
    if relative_to is None:
        return answer
    return replace(answer, relative=api.relative([gpu.id for gpu in answer.gpus], relative_to, catalog))


@gpus.shows
def show(session: Session, answer: api.GpusAnswer) -> None:
    """A list, or every fact about the one named."""
    document = {"gpus": answer.gpus, "sources": answer.sources}
    if answer.relative is not None:
        _show_relative(session, answer, answer.relative)
    elif session.named and len(answer.gpus) == 1:
        gpu = answer.gpus[0]
        session.show_one(document, gpu, _sentence(gpu))
        say_sources(session, answer.sources)
    else:
        session.show(document, answer.gpus, USUAL, msg("gpus.count", n=len(answer.gpus)))
        say_where_from(session, answer.gpus, answer.sources)


def _show_relative(session: Session, answer: api.GpusAnswer, speeds: api.RelativeAnswer) -> None:
    """The list with a column for each index; as JSON the figures stand beside the facts."""
    sort = session.asked.get("sort") or ""
    rows = _by(
        [flat(gpu) | _indices(row) for gpu, row in zip(answer.gpus, speeds.rows, strict=True)],
        sort if sort.lstrip("-").startswith(RELATIVE) else None,
    )
    names = list(dict.fromkeys(f"{RELATIVE}{item.index}" for item in speeds.mix))
    session.say(msg("gpus.count", n=len(answer.gpus)))
    session.show(answer, rows, ("name", *names))
    session.say(msg("relative.against", against=speeds.against_name, n=len(speeds.mix)))


def _indices(row: api.RelativeRow) -> dict[str, Cell]:
    return {f"{RELATIVE}{index}": figure.value for index, figure in row.relative.items()}


def _by(rows: Sequence[dict[str, Cell]], sort: str | None) -> Sequence[dict[str, Cell]]:
    """Rows by an index, largest first with a leading minus; those without it last."""
    if sort is None:
        return rows
    name = sort.lstrip("-")
    known = {field for row in rows for field in row if field.startswith(RELATIVE)}
    if name not in known:
        raise unknown_word("field", name, sorted(known))
    sign = -1 if sort.startswith("-") else 1

    def key(row: dict[str, Cell]) -> tuple[bool, Any]:
        value = row.get(name)
        return value is None, sign * value if isinstance(value, float) else 0.0

    return sorted(rows, key=key)


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
