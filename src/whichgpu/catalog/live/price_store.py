"""Open the user's price store for reading or writing; failures become DataErrors."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from msgspec.structs import replace

from whichgpu.base.errors import DataError
from whichgpu.base.files import data_folder, user_path
from whichgpu.base.messages import Message, msg
from whichgpu.catalog.live.price_store_schema import APPLICATION, MIGRATIONS

NAME = "prices.sqlite3"
WAIT_MS = 120_000  # Milliseconds to wait for another refresh to save its batch (set by judgement).

_REASONS = {
    "SQLITE_BUSY": "locked",
    "SQLITE_LOCKED": "locked",
    "SQLITE_READONLY": "readonly",
    "SQLITE_PERM": "readonly",
    "SQLITE_FULL": "full",
    "SQLITE_IOERR": "full",
    "SQLITE_TOOBIG": "full",
    "SQLITE_CANTOPEN": "unopenable",
    "SQLITE_NOTADB": "damaged",
    "SQLITE_CORRUPT": "damaged",
}


def store_path(folder: Path | None = None) -> Path | None:
    """Return the price store's path in the given folder, WHICHGPU_DATA, or the user's data directory; None without a home."""
    chosen = user_path(folder) if folder else data_folder()
    return chosen / NAME if chosen else None


@contextmanager
def open_for_reading(folder: Path | None = None) -> Iterator[sqlite3.Connection | None]:
    """Open the user's price store (SQLite) for reading; yield None if there is none or it is empty.

    All queries on the connection see one state of the store, whatever other processes write meanwhile.
    """
    path = store_path(folder)
    if path is None or not _exists(path):
        yield None
        return
    with translate_sqlite_errors(path):
        connection = _open_to_read(path)
        try:
            _check(connection, path)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version < len(MIGRATIONS):  # Migrating needs write access and raises without it.
                connection.close()
                connection = _open_to_write(path)
            connection.execute("BEGIN")  # Writers go on in the write-ahead log; this connection keeps its first read's state.
            yield connection if connection.execute("SELECT 1 FROM batch LIMIT 1").fetchone() else None
        finally:
            connection.close()


def check_writable(folder: Path | None = None) -> None:
    """Raise if the price store cannot be written; a missing store is not created."""
    path = store_path(folder)
    if path is not None and not _exists(path):
        _make_folder(path)
        try:
            with TemporaryFile(dir=path.parent):
                return
        except OSError as problem:
            message = msg("error.store-unopenable", path=str(path), why=problem.strerror or str(problem))
            raise DataError("store-unopenable", message, msg("hint.store-unopenable")) from problem
    with open_for_writing(folder):
        return


def store_fault(folder: Path | None = None) -> tuple[str, Message] | None:
    """Return what is wrong with the user's price store, as kind and message; None if it is sound or there is none."""
    path = store_path(folder)
    if path is None or not (path.exists() or path.is_symlink()):
        return None
    if not path.is_file():
        return "store-not-a-file", msg("finding.store-not-a-file", name=path.name)
    if not path.stat().st_size:
        return "store-empty", msg("finding.store-empty", name=path.name)
    try:
        with open_for_reading(folder), translate_sqlite_errors(path):
            connection = _open_to_read(path)
            try:
                fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            finally:
                connection.close()
    except DataError as problem:
        return problem.kind, replace(problem.message, values={**problem.message.values, "path": path.name})
    return None if fault == "ok" else ("store-damaged", msg("error.store-damaged", path=path.name, why=fault))


@contextmanager
def open_for_writing_lazily(folder: Path | None = None) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Yield a function that opens or creates the user's price store (SQLite) on first use."""
    opened: list[sqlite3.Connection] = []
    with ExitStack() as stack:

        def connection() -> sqlite3.Connection:
            if not opened:
                opened.append(stack.enter_context(open_for_writing(folder)))
            return opened[0]

        yield connection


@contextmanager
def open_for_writing(folder: Path | None = None) -> Iterator[sqlite3.Connection]:
    """Open the user's price store (SQLite) for writing; create or migrate it if needed."""
    path = store_path(folder)
    if path is None:
        raise DataError("store-homeless", msg("error.store-homeless"), msg("hint.store-homeless"))
    with translate_sqlite_errors(path):
        _make_folder(path)
        connection = _open_to_write(path)
        try:
            yield connection
        finally:
            with suppress(sqlite3.Error):
                connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one SQLite transaction, rolled back on an error; other writers wait, readers see the old state."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # On a full disk SQLite may have rolled back by itself, and a second rollback fails.
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Convert SQLite errors within the block to DataErrors that name the file."""
    try:
        yield
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", "") or ""
        kind = next((reason for start, reason in _REASONS.items() if name.startswith(start)), "failed")
        message = msg(f"error.store-{kind}", path=str(path), why=str(problem))
        raise DataError(f"store-{kind}", message, msg(f"hint.store-{kind}")) from problem


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        message = msg("error.store-folder", path=str(path.parent), why=problem.strerror or str(problem))
        raise DataError("store-folder", message, msg("hint.store-folder")) from problem


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    try:
        return _configured(sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None, timeout=WAIT_MS / 1000))
    except sqlite3.OperationalError:
        # A read-only folder or a full disk cannot have the index of the write-ahead log; without a log, the file is complete.
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _configured(sqlite3.connect(f"{uri}?immutable=1", uri=True, isolation_level=None))


def _configured(connection: sqlite3.Connection) -> sqlite3.Connection:
    try:
        connection.execute(f"PRAGMA busy_timeout={WAIT_MS}")
        connection.execute("PRAGMA mmap_size=1073741824")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _open_to_write(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=WAIT_MS / 1000)
    try:
        connection.execute(f"PRAGMA busy_timeout={WAIT_MS}")
        _check(connection, path)
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")  # With FULL, a batch that was reported as saved survives a power cut.
        connection.execute("PRAGMA cache_size=-65536")
        connection.execute("PRAGMA mmap_size=1073741824")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch SQLite to a write-ahead log; this statement does not wait for other processes, so it is retried."""
    for attempt in range(100):
        try:
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return
        except sqlite3.OperationalError as problem:
            if attempt == 99 or not str(problem.sqlite_errorname).startswith("SQLITE_BUSY"):
                raise
        time.sleep(0.05)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if a SQLite file is not a price store or was written by a later version of this program."""
    connection.execute("BEGIN")  # Read all in one transaction, since another process may be creating the store.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.execute("COMMIT")
    if tables and application != APPLICATION:
        raise DataError("store-foreign", msg("error.store-foreign", path=str(path)), msg("hint.store-foreign"))
    if version > len(MIGRATIONS):
        message = msg("error.store-newer", path=str(path), theirs=version, ours=len(MIGRATIONS))
        raise DataError("store-newer", message, msg("hint.store-newer"))


def _migrate(connection: sqlite3.Connection) -> None:
    """Apply the price store's missing migrations, each in a transaction, so that concurrent processes apply it once."""
    while connection.execute("PRAGMA user_version").fetchone()[0] < len(MIGRATIONS):
        with transaction(connection):
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version].split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={version + 1}")
