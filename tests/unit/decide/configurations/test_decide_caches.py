"""Recommendations do not depend on the size of the caches that they share."""

from __future__ import annotations

import pytest

from whichgpu.api.recommend.recommend import recommend
from whichgpu.base.lru import LruCache
from whichgpu.catalog.store import Catalog
from whichgpu.decide import refine
from whichgpu.decide.configurations import evaluate, replica_servers


@pytest.mark.parametrize("size", [1, *(pytest.param(size, marks=pytest.mark.long) for size in (3, 256))])
@pytest.mark.long
def test_answers_do_not_depend_on_cache_contents(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog()

    def candidate_summaries() -> object:
        answer = recommend("serve", "llama-3.1-8b", catalog=catalog, own=False, rate=2.0, seq_in=500, seq_out=300)
        return [(one.gpu, one.gpus, one.cost.amount, one.tpot) for one in answer.candidates]

    first = candidate_summaries()
    monkeypatch.setattr(replica_servers, "_STEP_TIMES", LruCache[replica_servers.CachedStepTimes](size))
    monkeypatch.setattr(refine, "_SERVED", LruCache[evaluate.Cached](size))
    assert candidate_summaries() == first
    assert candidate_summaries() == first
