"""Predicted and measured: the table is complete, groups add up, filters filter, and the worst are the worst."""

from __future__ import annotations

from typing import Unpack

import pytest

from whichgpu.api.context import Context
from whichgpu.api.facts.accuracy import AccuracyAnswer
from whichgpu.api.facts.accuracy import accuracy as verb
from whichgpu.api.facts.sources import sources
from whichgpu.api.request.evidence import AccuracyRequest
from whichgpu.api.workloads.fit import fit_model, needs
from whichgpu.base.errors import UnknownName
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.time.accuracy_pairs import accuracy_pairs


def accuracy(**request: Unpack[AccuracyRequest]) -> AccuracyAnswer:
    return verb(request, Context())


def test_every_pair_has_a_known_gpu_and_source_and_is_within_its_range() -> None:
    catalog = Catalog()
    for pair in accuracy_pairs():
        assert pair.gpu in catalog.gpu_by_id
        assert pair.source in catalog.sources, pair.source
        assert 0 < pair.low <= pair.predicted <= pair.high
        assert pair.measured > 0


def test_groups_add_up_to_the_whole() -> None:
    answer = accuracy(by="task")
    assert sum(one.rows for one in answer.scores) == answer.total.rows == len(accuracy_pairs())
    assert 0.85 < answer.total.inside <= 1.0  # a 90% range holds about nine in ten


def test_the_median_of_a_group_is_that_of_its_pairs() -> None:
    answer = accuracy(gpu=("T4",), by="gpu")
    errors = sorted(abs(pair.predicted / pair.measured - 1) for pair in accuracy_pairs() if pair.gpu == "t4")
    middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
    assert answer.scores[0].median == pytest.approx(middle, abs=1e-4)
    assert {pair.gpu for pair in answer.worst} == {"t4"}


def test_worst_pairs_come_first_by_ratio_in_either_direction() -> None:
    worst = accuracy().worst
    ratios = [max(pair.predicted / pair.measured, pair.measured / pair.predicted) for pair in worst]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] == max(max(pair.predicted / pair.measured, pair.measured / pair.predicted) for pair in accuracy_pairs())


def test_unmeasured_task_is_refused_with_the_measured_ones() -> None:
    with pytest.raises(UnknownName) as refused:
        accuracy(task=("trane",))
    assert "train" in refused.value.choices


def test_every_source_lists_its_rows() -> None:
    answer = sources()
    catalog = Catalog()
    assert {row.id for row in answer.sources} == set(catalog.sources)
    used = {id for gpu in catalog.gpus for id in gpu.sources}
    assert all(row.tables.get("gpus") for row in answer.sources if row.id in used)
    rows = [row.rows for row in answer.sources]
    assert rows == sorted(rows, reverse=True)
    assert all(sum(row.tables.values()) == row.rows for row in answer.sources)


def test_sources_are_found_by_words_and_by_table() -> None:
    answer = sources("nvidia h100")
    assert answer.sources
    assert all("h100" in f"{row.id} {row.title} {row.publisher} {row.url}".lower().replace("-", "") for row in answer.sources)
    assert all("prices" in row.tables for row in sources(table="prices").sources)


def test_needs_are_those_of_fit() -> None:
    from whichgpu.workload.spelling import from_object

    parsed = from_object({"task": "serve", "model": "llama-3.1-8b", "batch": 7})
    quick = {row.gpu: row for row in needs(parsed, ("H100 SXM", "L4")).gpus}
    for row in fit_model("llama-3.1-8b", ("H100 SXM", "L4"), batch=7).gpus:
        assert (int(quick[row.gpu].needed.value), quick[row.gpu].fits, quick[row.gpu].usable) == (
            row.needed,
            row.fits,
            row.usable,
        )
