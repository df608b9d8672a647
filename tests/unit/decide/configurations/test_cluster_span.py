"""How many GPUs a training run is searched with, which machines form clusters, and the MFU of the answer."""

from __future__ import annotations

from datetime import date

import pytest

from tests.unit import shapes
from whichgpu.api.recommend.recommend import recommend
from whichgpu.catalog.store import Catalog
from whichgpu.decide.configurations import groups
from whichgpu.decide.configurations.cluster_span import MACHINE_GPUS, MAX_CLUSTER_GPUS, training_span
from whichgpu.decide.requirements import Requirements

DAY = date(2026, 11, 17)


def test_small_runs_stay_on_one_machine_and_memory_or_deadline_ask_for_more(catalog: Catalog) -> None:
    assert training_span(shapes.LLAMA_3_8B, 1e9, None) is None
    assert training_span(shapes.LLAMA_3_8B, 20e9, 14 * 86400.0) is None
    hurried = training_span(shapes.LLAMA_3_8B, 1e12, 30 * 86400.0)
    assert hurried is not None
    assert hurried.low < hurried.needed < hurried.high
    assert hurried.needed > MACHINE_GPUS
    endless = training_span(shapes.LLAMA_3_8B, 1e15, 86400.0)
    assert endless is not None
    assert endless.high == MAX_CLUSTER_GPUS
    assert not endless.several_machines  # An engine for clusters is taken for the model's size, whatever the deadline is.


def test_cluster_is_rented_only_from_sellers_of_clusters_with_a_fast_network(catalog: Catalog) -> None:
    clustered = {provider.id for provider in catalog.providers if provider.rents == "clusters"}
    assert {"aws", "gcp", "azure", "oci"} <= clustered
    assert not {"vast", "runpod", "kaggle"} & clustered
    machines = {(one.provider, one.instance): one for one in catalog.instances}
    assert groups._in_clusters(machines["aws", "p5.48xlarge"], clustered)
    assert not groups._in_clusters(machines["aws", "g4dn.xlarge"], clustered)
    assert not groups._in_clusters(machines["aws", "p5.48xlarge"], {"gcp"})
    assert not groups._in_clusters(None, clustered)


@pytest.mark.parametrize(
    ("span", "joined", "separate", "machines"),
    [
        ((0.0, 8.0), False, False, [1]),
        ((0.0, 64.0), False, False, [1]),
        ((0.0, 64.0), True, False, [1, 2, 3, 4, 6, 8]),
        ((24.0, 40.0), True, False, [3, 4, 5]),
        ((2048.0, 4096.0), True, False, [256, 384, 512]),
        ((16.0, 64.0), True, True, [1, 2, 4, 8]),
    ],
)
def test_numbers_of_machines_of_a_group(span: tuple[float, float], joined: bool, separate: bool, machines: list[int]) -> None:
    assert groups._machine_counts(8, 1.0, span, joined, separate) == machines


def test_a_trillion_tokens_in_ninety_days_get_hundreds_of_gpus_in_one_cluster(catalog: Catalog) -> None:
    answer = recommend("train", "llama-3.1-70b", Requirements(deadline="90d"), DAY, catalog, own=False, tokens=10**12)
    best = answer.answer
    assert 64 <= best.gpus <= 1024
    assert best.machines == best.gpus // 8
    assert next(one.rents for one in catalog.providers if one.id == best.provider) == "clusters"
    assert best.parallel.tp * best.parallel.pp * best.parallel.dp == best.gpus
    assert best.run_time.value <= 90 * 86400
    mfu = next(one for one in best.because if one.id == "because.mfu")
    assert 35 <= float(str(mfu.values["mfu"]).rstrip("%")) <= 50
    assert any(one.id == "assumed.cluster" for one in answer.assumptions)
