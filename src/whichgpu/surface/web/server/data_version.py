"""Version of the data on which answers depend: the release's tables and calibration, and the user's own prices and records."""

from __future__ import annotations

from datetime import date
from functools import cache
from hashlib import blake2b
from pathlib import Path

from whichgpu.base.bundled_data import PACKAGE, SUMS, running_from_checkout
from whichgpu.base.files import data_folder
from whichgpu.base.version import __version__


def data_stamp() -> str:
    """Return a text that changes with the day, the user's price store and measurements, on which answers depend."""
    from whichgpu.catalog.live.price_store import store_path

    store, own = store_path(), data_folder()
    paths = [store, store.with_name(store.name + "-wal") if store else None, own / "records" if own else None]
    return " ".join((date.today().isoformat(), *(_file_stamp(path) for path in paths)))


@cache
def release_version(catalog: str | None) -> str:
    """Return a digest that changes with the release, its catalog and calibration, and the files of another catalog's folder."""
    version = blake2b(__version__.encode(), digest_size=12)
    version.update(SUMS.read_bytes() if SUMS.is_file() else b"")  # The digests of all bundled tables.
    folders = [*([PACKAGE] if running_from_checkout() else []), *([Path(catalog)] if catalog else [])]
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix != ".pyc"):
        version.update(f"{path.name} {_file_stamp(path)}\n".encode())
    return version.hexdigest()


def _file_stamp(path: Path | None) -> str:
    try:
        status = path.stat() if path is not None else None
    except OSError:
        status = None
    return f"{status.st_mtime_ns}/{status.st_size}" if status else "-"
