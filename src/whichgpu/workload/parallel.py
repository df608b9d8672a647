"""Parallel layout: the degrees by which work is split over GPUs."""

from __future__ import annotations

import msgspec

from whichgpu.base.records import field_types


class Parallel(msgspec.Struct, frozen=True):
    """A parallel layout: data, tensor, pipeline, expert and context parallel degrees, sequence parallel, ZeRO stage.

    `chunks` is the number of parts of a pipeline stage in the interleaved schedule (1: plain 1F1B). With `threads`, one process
    drives all replicas, as torch.nn.DataParallel does.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    sp: bool = False
    zero: int = 0
    chunks: int = 1
    threads: bool = False


LAYOUT_FIELDS = Parallel.__struct_fields__
LAYOUT_FLAGS = tuple(name for name, type_ in field_types(Parallel).items() if type_ == "bool")
