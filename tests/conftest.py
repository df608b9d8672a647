"""What all tests share: one catalog, the evidence folder if it is next to the checkout, no user settings."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import examples
from whichgpu.catalog.store import Catalog

# Examples are the same on every run, and none is failed for being slow on a busy machine.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=examples(40))
settings.load_profile("house")

# A shell that starts this in the background has it deaf to Ctrl-C, and with it every programme a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("WHICHGPU_SHARED", ROOT.parent / "shared"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most cases of a sweep to the long tests."""
    cases: Counter[str] = Counter()
    for item in items:
        if sweep := item.get_closest_marker("sweep"):
            test = item.nodeid.partition("[")[0]
            if cases[test] % sweep.args[0]:
                item.add_marker(pytest.mark.long)
            cases[test] += 1


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests collected: it would look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The bundled catalog."""
    return Catalog()


@pytest.fixture(scope="session")
def evidence() -> Path:
    """Public tables to check ours against; they are not part of the project."""
    folder = SHARED / "evidence"
    if not folder.is_dir():
        pytest.skip(f"no folder of evidence at {folder}")
    return folder


@pytest.fixture(autouse=True)
def no_user_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine's own configuration reaches a test."""
    for name in [name for name in os.environ if name.startswith("WHICHGPU_") and name != "WHICHGPU_SHARED"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LANGUAGE", "en")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests build and keep their own cache."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
