"""Calls to a Ray cluster and reports of its failures, against a fake one (the real one: test_plan_cluster)."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whichgpu.base.errors import NoAnswer, UsageError
from whichgpu.base.parallel import ray_cluster
from whichgpu.base.parallel.ray_cluster import TASKS_PER_PROCESSOR, check_ray
from whichgpu.base.parallel.sweep import run_sweep


class RayError(Exception): ...


class RayTaskError(RayError):
    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self.cause = cause


class RuntimeEnvSetupError(RayError): ...


class PlayedRay(ModuleType):
    """Runs a task when its result is fetched, the last given out first; `failure` is raised instead of the task numbered so."""

    def __init__(self, processors: float | None = 2.0) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, RuntimeEnvSetupError=RuntimeEnvSetupError)
        self.processors, self.running = processors, False
        self.init_settings: dict[str, Any] = {}
        self.refused: Exception | None = None
        self.failure: tuple[int, Exception] | None = None
        self.out, self.most_out, self.stopped = 0, 0, 0

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **settings: Any) -> None:
        self.init_settings = settings
        if self.refused:
            raise self.refused
        self.running = True

    def cluster_resources(self) -> dict[str, float]:
        return {} if self.processors is None else {"CPU": self.processors}

    def remote(self, function: Callable[[int, int], int]) -> Any:
        def task(item: int, seed: int) -> tuple[int, Callable[[], int]]:
            self.out += 1
            self.most_out = max(self.most_out, self.out)
            return item, lambda: function(item, seed)

        return SimpleNamespace(remote=task)

    def wait(self, references: Sequence[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return list(references[-num_returns:]), list(references[:-num_returns])

    def get(self, reference: tuple[int, Callable[[], int]]) -> int:
        self.out -= 1
        item, work = reference
        if self.failure and self.failure[0] == item:
            raise self.failure[1]
        return work()

    def shutdown(self) -> None:
        self.stopped += 1
        self.running = False


def with_seed(item: int, seed: int) -> tuple[int, int]:
    return 2 * item, seed


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlayedRay:
    played = PlayedRay()
    monkeypatch.setitem(sys.modules, "ray", played)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (ray_cluster.MODE, ray_cluster.TOKEN, ray_cluster.TOKEN_PATH):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is taken back
        monkeypatch.delenv(name)
    return played


@pytest.fixture
def listening() -> Any:
    """An address of this machine with a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


ITEMS = list(range(11))


def test_cluster_results_equal_serial_results_in_order(ray: PlayedRay) -> None:
    assert run_sweep(with_seed, ITEMS, ray="local", seed=5) == run_sweep(with_seed, ITEMS, seed=5)


@pytest.mark.parametrize(("processors", "workers"), [(2.0, 2), (0.5, 1), (None, 1)])
def test_tasks_in_flight_are_limited_by_processors(ray: PlayedRay, processors: float, workers: int) -> None:
    ray.processors = processors
    run_sweep(with_seed, ITEMS, ray="local")
    assert ray.most_out == TASKS_PER_PROCESSOR * workers


def test_a_cluster_of_this_run_alone_is_stopped_and_has_no_page(ray: PlayedRay) -> None:
    run_sweep(with_seed, ITEMS, ray="local")
    assert ray.init_settings["address"] == "local"
    assert ray.init_settings["include_dashboard"] is False
    assert ray.stopped == 1


def test_a_cluster_that_is_there_is_sent_this_code(ray: PlayedRay) -> None:
    run_sweep(with_seed, ITEMS, ray="auto")
    assert ray.init_settings["runtime_env"] == {"py_modules": [str(ray_cluster.PACKAGE)]}
    assert (ray_cluster.PACKAGE / "base" / "parallel" / "ray_cluster.py").is_file()


def test_existing_ray_connection_is_reused(ray: PlayedRay) -> None:
    ray.running = True
    run_sweep(with_seed, ITEMS, ray="auto")
    assert (ray.init_settings, ray.stopped, ray.running) == ({}, 0, True)


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (RayTaskError("wrapped", ImportError("no", name="highspy")), "ray-lacks", "at local has no highspy"),
        (RayTaskError("wrapped", ImportError("cannot load libsomething")), "ray-lacks", "has no cannot load libsomething"),
        (RuntimeEnvSetupError("cannot unpack\nat length"), "ray-unreachable", "responds at local: cannot unpack"),
        (RayError("the node is gone"), "worker-died", "was killed"),
    ],
)
def test_cluster_failure_raises_our_error_and_stops_the_cluster(
    ray: PlayedRay, failure: Exception, kind: str, message: str
) -> None:
    ray.failure = (7, failure)
    with pytest.raises(NoAnswer) as error:
        run_sweep(with_seed, ITEMS, ray="local")
    assert error.value.kind == kind
    assert message in str(error.value)
    assert "at length" not in str(error.value)
    assert ray.stopped == 1


def test_a_tasks_own_error_is_raised_rather_than_rays_wrapping(ray: PlayedRay) -> None:
    ray.failure = (3, RayTaskError("wrapped", ArithmeticError("no such thing")))
    with pytest.raises(ArithmeticError, match="no such thing"):
        run_sweep(with_seed, ITEMS, ray="local")
    ray.failure = (3, RayTaskError("of which nothing is known"))
    with pytest.raises(RayTaskError, match="of which nothing is known"):
        run_sweep(with_seed, ITEMS, ray="local")


@pytest.mark.parametrize(
    ("address", "mode", "hint"),
    [
        ("local", None, "hint.ray-unreachable"),
        ("auto", None, "hint.ray-unreachable"),
        ("192.0.2.1:6379", None, "hint.ray-token"),
        ("192.0.2.1:6379", "token", "hint.ray-unreachable"),
    ],
)
def test_cluster_refusal_is_reported_with_its_first_line(
    ray: PlayedRay, monkeypatch: pytest.MonkeyPatch, address: str, mode: str | None, hint: str
) -> None:
    if mode:
        monkeypatch.setenv(ray_cluster.MODE, mode)
    ray.refused = ConnectionError("nobody there\nTraceback and more")
    with pytest.raises(NoAnswer, match=f"responds at {address}: nobody there$") as error:
        run_sweep(with_seed, ITEMS, ray=address)
    assert error.value.kind == "ray-unreachable"
    assert error.value.hint is not None
    assert error.value.hint.id == hint


@pytest.mark.parametrize("told_by", ["variable", "path", "file"])
def test_a_token_is_shown_to_this_machine_only(
    ray: PlayedRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listening: str, told_by: str
) -> None:
    run_sweep(with_seed, ITEMS, ray=listening)
    assert ray_cluster.MODE not in os.environ  # there is none
    if told_by == "file":
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    else:
        monkeypatch.setenv(ray_cluster.TOKEN if told_by == "variable" else ray_cluster.TOKEN_PATH, "secret")
    for elsewhere in ("192.0.2.1:6379", "local", "auto"):
        run_sweep(with_seed, ITEMS, ray=elsewhere)
        assert ray_cluster.MODE not in os.environ, elsewhere
    run_sweep(with_seed, ITEMS, ray=listening)
    assert os.environ[ray_cluster.MODE] == "token"


@pytest.mark.parametrize("address", ["", "host", "host:", ":6379", "host:port", "host:0", "host:65536", "ray://:1", "auto:"])
def test_invalid_address_is_refused_first(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: pytest.fail("asked for Ray"))
    with pytest.raises(UsageError, match="wants auto, local or an address") as error:
        check_ray(address)
    assert error.value.kind == "bad-ray"


@pytest.mark.parametrize("address", ["local", "auto", "192.0.2.1:6379"])
def test_without_ray_no_cluster_is_contacted(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("called somebody"))
    with pytest.raises(UsageError, match="Ray is not installed") as error:
        check_ray(address)
    assert error.value.kind == "no-ray"


def test_an_address_is_called_before_the_work_and_words_are_not(ray: PlayedRay, listening: str) -> None:
    for address in (listening, f"ray://{listening}", "local", "auto"):
        check_ray(address)
    assert ray.init_settings == {}


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "no..such"])
def test_unreachable_cluster_error_has_the_reason(ray: PlayedRay, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))  # bound, but not listening
        with pytest.raises(NoAnswer, match="no Ray cluster responds") as error:
            check_ray(f"{host}:{connection.getsockname()[1]}")
    assert error.value.kind == "ray-unreachable"
    assert not str(error.value).endswith(": ")


def test_local_address_is_recognised_in_either_spelling(listening: str) -> None:
    assert ray_cluster.own_address(listening)
    assert ray_cluster.own_address(f"ray://{listening}")
    assert not ray_cluster.own_address("ray://192.0.2.255:10001")
