"""Fixtures of the seed tests: lookups of exactly one catalog row by name.

The tests in this folder compare the figures of five hand-written documents, 2015 to 2024, with the catalog. Where a
document slipped, the test says so and asserts both sides: that the document's figure is not the catalog's, and what is right.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whichgpu.api.facts.catalog import select_gpus, select_instances
from whichgpu.catalog.gpu import Gpu
from whichgpu.catalog.host import Instance
from whichgpu.catalog.store import Catalog


@pytest.fixture(scope="session")
def gpu(catalog: Catalog) -> Callable[[str], Gpu]:
    """The one GPU of a name; a name that fits several fails the test."""

    def find_gpu(name: str) -> Gpu:
        gpus = select_gpus([name], catalog=catalog).gpus
        assert len(gpus) == 1, f"{name} is {[row.id for row in gpus]}"
        return gpus[0]

    return find_gpu


@pytest.fixture(scope="session")
def instance(catalog: Catalog) -> Callable[[str], Instance]:
    """The one machine of a name; a name that fits several fails the test."""

    def find_instance(name: str) -> Instance:
        instances = select_instances([name], catalog=catalog).instances
        assert len(instances) == 1, f"{name} is {[row.instance for row in instances]}"
        return instances[0]

    return find_instance
