"""Shares of a plan as a router keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from whichgpu.decide.plan.routing import by_buckets, by_prompts, depends_on_outputs
from whichgpu.decide.plan.traffic import Bucket

BUCKETS = (
    Bucket(1, 100, 1, 50, 60.0, 30.0, 0.25),
    Bucket(1, 100, 51, 400, 60.0, 200.0, 0.25),
    Bucket(101, 4000, 1, 50, 900.0, 30.0, 0.25),
    Bucket(101, 4000, 51, 400, 900.0, 200.0, 0.25),
)
DEMAND = np.array([3.0, 1.0, 2.0, 2.0])
SHARES = np.array([[1.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.5, 0.5]])


def test_every_length_maps_to_its_bucket() -> None:
    routing = by_buckets(BUCKETS, SHARES)
    for place, bucket in enumerate(BUCKETS):
        for prompt in (bucket.prompt_from, bucket.prompt_to):
            for output in (bucket.output_from, bucket.output_to):
                assert routing.shares[routing.bucket(prompt, output)] == pytest.approx(SHARES[:, place])


def test_prompts_alone_keep_the_shares_of_all_their_answers() -> None:
    routing = by_prompts(BUCKETS, DEMAND, SHARES)
    assert routing.shares[routing.bucket(50, 300)] == pytest.approx((0.75, 0.25))
    assert routing.shares[routing.bucket(101, 1)] == pytest.approx((0.5, 0.5))


def test_only_shares_that_differ_by_answers_need_to_know_them() -> None:
    assert depends_on_outputs(BUCKETS, SHARES)
    assert not depends_on_outputs(BUCKETS, np.array([[1.0, 1.0, 0.2, 0.2], [0.0, 0.0, 0.8, 0.8]]))


def test_lengths_that_no_bucket_holds_go_with_the_nearest() -> None:
    routing = by_buckets((BUCKETS[0], BUCKETS[3]), SHARES[:, [0, 3]])
    assert routing.shares[routing.bucket(60, 300)] in ((1.0, 0.0), (0.5, 0.5))
    assert all(sum(row) == pytest.approx(1.0) for row in routing.shares)
