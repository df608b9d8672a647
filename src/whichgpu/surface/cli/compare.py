"""`whichgpu compare`: side by side."""

from __future__ import annotations

import click

from whichgpu import api
from whichgpu.base.codec import Cell, to_json
from whichgpu.base.messages import msg
from whichgpu.surface.cli.frame import GPU, catalog_of, command
from whichgpu.surface.cli.session import Session
from whichgpu.surface.cli.sources import say_sources
from whichgpu.surface.fields import chosen, flat_rows, human, label

USUAL = (
    "architecture form_factor memory_bytes memory_type memory_bandwidth peaks.fp64 peaks.fp32 peaks.tf32 peaks.bf16 peaks.fp16 "
    "peaks.fp8 peaks.fp4 peaks.int8 link.kind link.bandwidth pcie.generation l2_bytes tdp_watts compute_capability launch_date "
    "software.toolkit_last software.pytorch_last"
).split()
MACHINE = "provider gpus vcpus ram_bytes local_disk_bytes network_gbps interconnect.kind topology".split()


@command("compare", "[OPTIONS]", epilog=True)
@click.argument("names", nargs=-1, required=True, type=GPU, metavar="NAME…")
def compare(session: Session, names: tuple[str, ...]) -> None:
    """Facts in rows, what is compared in columns."""
    answer = api.compare(names, catalog_of(session))
    rows = flat_rows([column.gpu for column in answer.compared])
    machines = flat_rows([column.instance or {} for column in answer.compared])
    usual = [name for name in MACHINE if name in machines[0]]
    merged: list[dict[str, Cell]] = [
        card | {name: machine.get(name) for name in usual} for card, machine in zip(rows, machines, strict=True)
    ]
    facts = chosen(session.columns, merged, (*usual, *USUAL), session.language)
    session.say(msg("compare.count", n=len(answer.compared)))
    if session.format == "json":
        session.out.write(to_json(answer))
        return
    told = [name for name in facts if any(row[name] not in (None, "") for row in merged)]
    header = [session.language.text("column.fact"), *(column.name for column in answer.compared)]
    if session.format == "csv":
        session.table(["field", *header[1:]], [[name, *(row[name] for row in merged)] for name in told])
        return
    session.table_of_columns(
        header, [[label(name, session.language), *(human(name, row[name], session.language) for row in merged)] for name in told]
    )
    say_sources(session, answer.sources)
