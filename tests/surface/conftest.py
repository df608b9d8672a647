"""One ordinary server for all tests that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.surface.web import SMALL, Server, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("web")) as running:
        yield running


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with short timeouts, whose workers misbehave on demand."""
    with serving(tmp_path_factory.mktemp("small"), script=SMALL) as running:
        yield running
