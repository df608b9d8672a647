"""Properties of workloads: every spelling reads back as the same value, and no input crashes a parser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.workload_flags import read_flags
from whichgpu.base.errors import UsageError
from whichgpu.base.kinds import Flag, Number, ValueKind, Whole
from whichgpu.workload.decoding.offload import Offload
from whichgpu.workload.decoding.speculative import Speculative
from whichgpu.workload.kinds import LORA_TARGETS, Word
from whichgpu.workload.model_files.json_text import read_object
from whichgpu.workload.spelling import (
    ParsedWorkload,
    echo,
    from_object,
    from_toml,
    to_argv,
)
from whichgpu.workload.workload import FIELDS, KINDS, Parallel, Workload

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30).filter(
    lambda text: not text.startswith("{") and text.isprintable()
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
LAYOUTS = st.builds(
    Parallel,
    **{name: st.integers(1, 64) for name in ("dp", "tp", "pp", "ep", "cp")},
    sp=st.booleans(),
    zero=st.integers(0, 3),
)

ACCEPTANCE = st.floats(0.01, 1)
SPECULATIVE = st.builds(Speculative, st.just("draft"), st.just("llama-3.2-1b"), st.integers(1, 64), ACCEPTANCE) | st.builds(
    Speculative, st.sampled_from(["mtp", "eagle", "ngram"]), st.just(""), st.integers(1, 64), ACCEPTANCE
)
OFFLOADS = st.sampled_from([Offload(experts=True), Offload(experts=True, layers=3), Offload(automatic=True), Offload(layers=7)])


def values(kind: ValueKind) -> st.SearchStrategy[Any]:
    """Everything a field may hold."""
    if isinstance(kind, Word):
        return st.sampled_from(kind.choices)
    if isinstance(kind, Flag):
        return st.booleans()
    if isinstance(kind, Whole):
        return st.integers(kind.low, kind.high)
    assert isinstance(kind, Number)
    return st.floats(1e-9, kind.high, allow_nan=False)


def workloads() -> st.SearchStrategy[Workload]:
    special: dict[str, st.SearchStrategy[Any]] = {
        "model": NAMES | st.dictionaries(st.text(max_size=12), JSON, min_size=1, max_size=4),
        "gpu": st.none() | NAMES,
        "parallel": LAYOUTS,
        "speculative": st.none() | SPECULATIVE,
        **dict.fromkeys(("prefix_hit", "lora_dropout"), st.none() | st.floats(0, 1)),
        "offload": st.none() | OFFLOADS,
        "lora_targets": st.lists(st.sampled_from(LORA_TARGETS), min_size=1, unique=True).map(",".join),
    }
    bare = Workload("serve", "")
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name in FIELDS:
        strategy = special[name] if name in special else values(KINDS[name])
        optional = name not in special and name != "task" and getattr(bare, name) is None
        fields[name] = st.none() | strategy if optional else strategy
    return st.builds(Workload, **fields).map(consistent)


def consistent(workload: Workload) -> Workload:
    """Without contradictory fields: several run lengths, a rate together with a batch."""
    lengths = [name for name in ("epochs", "steps", "tokens") if getattr(workload, name) is not None]
    left: dict[str, Any] = dict.fromkeys(lengths[1:])
    if workload.task == "serve" and workload.rate is not None:
        left["batch"] = None
    return replace(workload, lora_rank=workload.lora_rank or None, **left)


@given(workloads())
def test_every_spelling_reads_back_as_the_same_workload(workload: Workload) -> None:
    assert from_object(echo(workload, FIELDS)).workload == workload
    assert read_flags(to_argv(workload)).workload == workload


@given(workloads(), st.integers(1, 100), st.floats(0.1, 100.0))
def test_rate_together_with_batch_is_refused_in_every_spelling(workload: Workload, batch: int, rate: float) -> None:
    both = replace(workload, task="serve", batch=batch, rate=rate)
    spelled: list[tuple[Callable[[Any], ParsedWorkload], Any]] = [
        (from_object, echo(both, FIELDS)), (read_flags, to_argv(both)),
    ]  # fmt: skip
    for read, text in spelled:
        with pytest.raises(UsageError) as refused:
            read(text)
        assert refused.value.kind == "contradiction"


@given(st.dictionaries(st.sampled_from([*FIELDS, "id", "tp", "foo"]), JSON, max_size=6))
def test_any_object_is_read_or_politely_refused(request_: dict[str, Any]) -> None:
    try:
        from_object(request_)
    except UsageError as error:
        assert error.hint is not None


@given(st.text(max_size=80))
def test_any_text_is_read_or_politely_refused(text: str) -> None:
    for read in (from_toml, lambda words: read_flags(words.split())):
        try:
            read(text)
        except UsageError as error:
            assert error.hint is not None
    try:
        read_object(text)
    except ValueError as problem:
        assert str(problem)
