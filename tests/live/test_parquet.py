"""What is passed to pyarrow, an optional dependency: each column's type, days as dates, rows in batches."""

from __future__ import annotations

import io
import sys
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whichgpu.base.errors import UsageError
from whichgpu.catalog.live import export
from whichgpu.catalog.live.export import COLUMNS, check_export, write_parquet
from whichgpu.catalog.offer import Observation

SEEN = Observation(
    "aws", "p5.48xlarge", "us-east-1", "h100-sxm", 8, "reserved-1y", "partial-upfront", Decimal("55.04"), "USD", Decimal(100),
    "gpu+host", "2026-08-22", "2026-08-23", None, "skypilot", "2026-11-15",
)  # fmt: skip


class Values(list[Any]):
    """A column and its type; cast to another it says from which."""

    def __init__(self, values: list[Any], kind: str) -> None:
        super().__init__(values)
        self.kind = kind

    def cast(self, kind: str) -> Values:
        return Values(self, f"{self.kind} as {kind}")


class PlayedArrow(ModuleType):
    def __init__(self) -> None:
        super().__init__("pyarrow")
        self.tables: list[dict[str, Values]] = []
        self.Table = SimpleNamespace(from_arrays=lambda columns, schema: dict(zip(schema.names, columns, strict=True)))

    string = staticmethod(lambda: "text")
    float64 = staticmethod(lambda: "float")
    date32 = staticmethod(lambda: "day")
    decimal128 = staticmethod(lambda digits, scale: f"decimal {digits} {scale}")
    array = staticmethod(Values)

    def schema(self, fields: list[tuple[str, str]]) -> Any:
        return SimpleNamespace(names=[name for name, _ in fields], field=lambda name: SimpleNamespace(type=dict(fields)[name]))

    def writer(self, stream: object, schema: object, compression: str) -> Any:
        class Writer:
            def __enter__(inner) -> Writer:
                return inner

            def __exit__(inner, *_: object) -> None: ...

            def write_table(inner, table: dict[str, Values]) -> None:
                self.tables.append(table)

        assert compression == "zstd"
        return Writer()


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> PlayedArrow:
    played = PlayedArrow()
    parquet = ModuleType("pyarrow.parquet")
    parquet.ParquetWriter = played.writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", played)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    return played


def test_money_is_decimal_days_are_days_and_the_rest_is_text(arrow: PlayedArrow) -> None:
    assert write_parquet([SEEN], io.BytesIO()) == 1
    (table,) = arrow.tables
    assert list(table) == COLUMNS
    kinds = {name: column.kind for name, column in table.items()}
    assert {name for name, kind in kinds.items() if kind == "decimal 24 6"} == {"price", "upfront"}
    assert {name for name, kind in kinds.items() if kind == "text as day"} == {"observed", "last_observed", "ended", "recorded"}
    assert kinds["gpus"] == "float"
    assert kinds["provider"] == "text"
    assert table["price"] == [Decimal("55.04")]
    assert table["ended"] == [None]


@pytest.mark.parametrize(("rows", "groups"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_rows_are_written_in_groups(arrow: PlayedArrow, monkeypatch: pytest.MonkeyPatch, rows: int, groups: list[int]) -> None:
    monkeypatch.setattr(export, "CHUNK_ROWS", 3)
    assert write_parquet(iter([SEEN] * rows), io.BytesIO()) == rows
    assert [len(table["price"]) for table in arrow.tables] == groups


def test_without_pyarrow_the_extra_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pyarrow") as error:
        check_export("prices.parquet")
    assert error.value.kind == "needs-extra"


def test_format_follows_the_file_extension(arrow: PlayedArrow) -> None:
    assert [check_export(name) for name in ("a.CSV", "a.b.json", "a.parquet")] == [".csv", ".json", ".parquet"]
    with pytest.raises(UsageError, match=r"prices\.xlsx") as error:
        check_export("prices.xlsx")
    assert error.value.kind == "bad-export"
    assert error.value.choices == (".csv", ".json", ".parquet")
