"""Estimates for many requests, one reply per line in order; requests that differ only in the GPU are evaluated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from whichgpu.api.lookup_cache import lookup_cache
from whichgpu.api.workloads.estimate import EstimateAnswer, ResolvedWorkload, build_estimate, resolve_workload
from whichgpu.api.workloads.remarks import MAX_LINE_BYTES
from whichgpu.base.errors import UsageError, WhichGpuError
from whichgpu.base.messages import msg
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.lookup_cache import LookupCache
from whichgpu.workload.spelling import from_object

if TYPE_CHECKING:
    from whichgpu.estimate.time.time_estimate import TimeEstimate

Numbered = tuple[int, bytes]  # Line number, counted from 1, and the line.
TOGETHER_BYTES = 4 * MAX_LINE_BYTES  # Maximum bytes of lines held in memory at a time.


class Reply(msgspec.Struct, frozen=True):
    """The answer to the request on one line of input, or the error."""

    line: int
    id: Any
    answer: EstimateAnswer | None = None
    error: WhichGpuError | None = None


class _Line(msgspec.Struct):
    number: int
    id: Any = None
    resolved: ResolvedWorkload | None = None
    error: WhichGpuError | None = None


def estimate_requests(
    lines: Iterable[bytes], catalog: Catalog | None = None, together: int = 1, own: bool = True
) -> Iterator[Reply]:
    """Yield one reply per request, in order; an invalid line gets a reply with its error, blank lines are skipped.

    Replies come line by line, or after `together` lines are read, which is faster and changes no answer. Without `own`, the
    user's own measurements are ignored.
    """
    lookups = untrusted_cache(catalog, own)
    for group in line_groups(lines, together):
        yield from replies(group, lookups)


def untrusted_cache(catalog: Catalog | None = None, own: bool = True) -> LookupCache:
    """Return a cache of models and GPUs for requests from untrusted sources: it never runs a model's own code."""
    return lookup_cache(catalog, trusting=False, own=own)


def replies(group: Sequence[Numbered], lookups: LookupCache) -> Iterator[Reply]:
    """Yield one reply per numbered request line; requests that differ only in the GPU are evaluated together."""
    read = [_understood(number, line, lookups) for number, line in group]
    times = _times([line.resolved for line in read if line.resolved], lookups) if len(read) > 1 else {}
    for line in read:
        yield _reply(line, lookups, times)


def line_groups(lines: Iterable[bytes], max_lines: int) -> Iterator[list[Numbered]]:
    """Yield groups of up to `max_lines` lines that are not blank, with their numbers."""
    group: list[Numbered] = []
    group_bytes = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            group.append((number, line))
            group_bytes += len(line)
        if len(group) >= max_lines or group_bytes >= TOGETHER_BYTES:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def _understood(number: int, line: bytes, lookups: LookupCache) -> _Line:
    parsed = _Line(number)
    try:
        request = _request(line)
        parsed.id = request.get("id")
        parsed.resolved = resolve_workload(from_object(request), lookups)
    except Exception as problem:  # A defect in one line must not prevent replies to the lines after it.
        parsed.error = _error(problem)
    return parsed


def _times(resolved: Sequence[ResolvedWorkload], lookups: LookupCache) -> dict[int, TimeEstimate]:
    """Return time estimates by Python's `id()` of the request; those that differ only in the GPU are evaluated in one call."""
    from whichgpu.estimate.time.time_estimate import estimate_times

    alike: dict[object, list[tuple[ResolvedWorkload, Gpu]]] = {}
    for one in resolved:
        if one.timed and one.gpu and one.workload.gpus == 1 and isinstance(one.workload.model, str):
            alike.setdefault((replace(one.workload, gpu=None), one.shape), []).append((one, one.gpu))
    time_by_id: dict[int, TimeEstimate] = {}
    for pairs in alike.values():
        try:
            times = (
                estimate_times(pairs[0][0].workload, pairs[0][0].shape, [gpu for _, gpu in pairs], lookups.calibration)
                if len(pairs) > 1
                else ()
            )
        except Exception:  # Each request is estimated separately afterwards and reports its own error.
            continue
        time_by_id |= {id(one): time for (one, _), time in zip(pairs, times, strict=False)}
    return time_by_id


def _reply(line: _Line, lookups: LookupCache, times: dict[int, TimeEstimate]) -> Reply:
    if line.resolved is None:
        return Reply(line.number, line.id, error=line.error)
    try:
        return Reply(line.number, line.id, build_estimate(line.resolved, lookups, times.get(id(line.resolved))))
    except Exception as problem:
        return Reply(line.number, line.id, error=_error(problem))


def _error(problem: Exception) -> WhichGpuError:
    if isinstance(problem, WhichGpuError):
        return problem
    message = msg("error.internal", what=f"{type(problem).__name__}: {problem}")
    return WhichGpuError("internal", message, msg("hint.internal"))


def _request(line: bytes) -> dict[str, Any]:
    from whichgpu.workload.model_files.json_text import read_object

    if len(line) > MAX_LINE_BYTES:
        raise UsageError("line-too-long", msg("error.line-too-long", most=f"{MAX_LINE_BYTES:,}"), msg("hint.request"))
    try:
        return read_object(line.decode("utf-8"))
    except ValueError as problem:
        raise UsageError("bad-json", msg("error.bad-json", why=str(problem)), msg("hint.request")) from problem
