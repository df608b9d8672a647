"""All prices as columns, from which those valid on a day are selected at once.

`asof.price_on_day` applies the same rule to one offer; a recommendation covers all offers, too many to make an object of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from operator import attrgetter

import msgspec
import numpy as np
from numpy.typing import NDArray

from whichgpu.base.dates import first_day, last_day
from whichgpu.base.lru import LruCache
from whichgpu.catalog.cache import load_or_build
from whichgpu.catalog.offer import Observation
from whichgpu.catalog.store import Catalog

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NEVER = 10**7  # The day number of offers that have not ended.
WORDS = ("provider", "instance", "region", "gpu", "term", "payment", "price", "currency", "includes", "observed", "last_observed",
         "source", "note", "standing", "discount")  # fmt: skip
KEY = ("provider", "instance", "region", "gpu", "term", "payment", "includes")


class Packed(msgspec.Struct, frozen=True):
    """A price table as stored in the cache: texts as indices into one list `words`, days as day numbers."""

    words: tuple[str, ...]
    places: bytes  # indices into `words`, int32, [word columns, rows]
    days: bytes  # day numbers, int32: first seen, last seen, ended, [3, rows]
    numbers: bytes  # float64: number of GPUs, price per hour, [2, rows]
    offers: bytes  # int32: a number per row that identifies its offer


class PriceTable(msgspec.Struct, frozen=True, eq=False):
    """Observed prices as columns: one row per machine, region, term and price, with the days on which it was seen."""

    words: tuple[str, ...]
    places: Ints  # indices into `words`, [word columns, rows]
    days: Ints  # day numbers: first seen, last seen, ended, [3, rows]
    numbers: Floats  # number of GPUs and price per hour, [2, rows]
    offers: Ints | None = None  # a number per row that identifies its offer; None until computed
    word_places: dict[str, int] = msgspec.field(default_factory=dict)  # index of each word, filled at the first lookup

    def __len__(self) -> int:
        return int(self.places.shape[1])

    def column(self, name: str) -> Ints:
        """Return, for each row, the index into `words` (all texts of the table) of its text in a column."""
        places: Ints = self.places[WORDS.index(name)]
        return places

    def word(self, name: str, row: int) -> str:
        """Return the text of one cell of the price table."""
        return self.words[int(self.column(name)[row])]

    def matches(self, name: str, values: Iterable[str]) -> NDArray[np.bool_]:
        """Return a mask of the rows whose text in the column `name` is one of these values."""
        places = [at for word in values if (at := self.place(word)) is not None]
        column = self.column(name)
        return column == places[0] if len(places) == 1 else np.isin(column, places)

    def place(self, word: str) -> int | None:
        """Return the index of a text in `words`, the list of all texts of the table; None if absent."""
        if not self.word_places:
            self.word_places.update((each, at) for at, each in enumerate(self.words))
        return self.word_places.get(word)

    @property
    def gpus(self) -> Floats:
        """Return the number of GPUs of each row's machine."""
        counts: Floats = self.numbers[0]
        return counts

    @property
    def price(self) -> Floats:
        """Return the price per hour of each row's machine, in the row's currency."""
        prices: Floats = self.numbers[1]
        return prices

    def select_rows(self, rows: Ints) -> PriceTable:
        """Return a price table of the rows with these indices."""
        return PriceTable(
            self.words, self.places[:, rows], self.days[:, rows], self.numbers[:, rows], word_places=self.word_places
        )


def rows_on_day(table: PriceTable, day: date) -> Ints:
    """Return the rows of prices valid on a day: for each offer still listed, its latest observation not after the day."""
    today = day.toordinal()
    first, last, ended = table.days
    known_until = np.where(ended <= today, ended, np.minimum(last, today))
    started = np.flatnonzero(first <= today)
    key = (_keys(table) if table.offers is None else table.offers)[started]
    order = np.lexsort((first[started], known_until[started], key))
    ordered = started[order]
    latest = np.append(np.diff(key[order]) != 0, True) if len(ordered) else np.zeros(0, dtype=bool)
    chosen = ordered[latest]
    return np.sort(chosen[ended[chosen] > today])


_TABLES = LruCache[tuple[PriceTable, Catalog]](4)  # The catalog is kept too, since its `id()` is the key.


def price_table(catalog: Catalog | None, more: Sequence[Observation] = ()) -> PriceTable:
    """Return the catalog's bundled prices, if it is given, without those recorded after its day, and the prices in `more`."""
    if catalog is None:
        return _unpacked(_packed(more))
    table = _TABLES.get(id(catalog), lambda: (_unpacked(_stored(catalog)), catalog))[0]
    return _joined(table, _unpacked(_packed(more))) if more else table


def _stored(catalog: Catalog) -> Packed:
    if catalog.as_known is not None:
        return _packed(_bundled(catalog))
    files = [catalog.folder / f"{name}.csv" for name in ("prices", "instances")]
    return load_or_build("price-table", Packed, files, lambda: (_packed(_bundled(catalog)),))[0]


def _bundled(catalog: Catalog) -> Iterator[Observation]:
    return (run for row in catalog.prices() for run in row.observations())


def _packed(runs: Iterable[Observation]) -> Packed:
    observations = list(runs)
    words, places = _numbered([_texts(observations, name) for name in WORDS])
    days = [
        _day_numbers(_texts(observations, name), number)
        for name, number in (("observed", first_day), ("last_observed", last_day), ("ended", first_day))
    ]
    numbers = [np.fromiter((float(getattr(run, name)) for run in observations), np.float64) for name in ("gpus", "price")]
    table = PriceTable(words, places, np.stack(days), np.stack(numbers))
    columns = (table.places.astype(np.int32), table.days.astype(np.int32), table.numbers, _keys(table).astype(np.int32))
    return Packed(table.words, *(column.tobytes() for column in columns))


def _texts(observations: Sequence[Observation], name: str) -> list[str]:
    """Return one field of each observation as text; empty for None."""
    return ["" if value is None else value if type(value) is str else str(value) for value in map(attrgetter(name), observations)]


def _numbered(columns: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], Ints]:
    """Return all texts in order of first appearance, row by row, and for each cell the index of its text, [columns, rows]."""
    distinct = [dict.fromkeys(column) for column in columns]
    codes = [dict(zip(texts, range(len(texts)), strict=True)) for texts in distinct]
    local = [np.fromiter(map(code.__getitem__, column), np.int64) for code, column in zip(codes, columns, strict=True)]
    first_rows = [np.unique(numbers, return_index=True)[1] for numbers in local]
    column_of = np.repeat(np.arange(len(columns)), [len(rows) for rows in first_rows])
    order = np.lexsort((column_of, np.concatenate(first_rows)))
    texts = [text for column in distinct for text in column]
    ids: dict[str, int] = {}
    for at in order.tolist():
        ids.setdefault(texts[at], len(ids))
    places = [
        np.array([ids[text] for text in column] or [0], dtype=np.int64)[numbers]
        for column, numbers in zip(distinct, local, strict=True)
    ]
    return tuple(ids), np.stack(places)


def _day_numbers(texts: Sequence[str], day_of: Callable[[str], date]) -> Ints:
    """Return the day number of each date text; that of offers that have not ended for an empty one."""
    numbers = {text: day_of(text).toordinal() if text else NEVER for text in dict.fromkeys(texts)}
    return np.fromiter(map(numbers.__getitem__, texts), np.int64)


def _unpacked(packed: Packed) -> PriceTable:
    return PriceTable(
        packed.words,
        np.frombuffer(packed.places, dtype=np.int32).reshape(len(WORDS), -1).astype(np.int64),
        np.frombuffer(packed.days, dtype=np.int32).reshape(3, -1).astype(np.int64),
        np.frombuffer(packed.numbers, dtype=np.float64).reshape(2, -1),
        np.frombuffer(packed.offers, dtype=np.int32).astype(np.int64),
    )


def _joined(one: PriceTable, other: PriceTable) -> PriceTable:
    """Return one price table with the rows of both; indices into `words` refer to the merged list of texts."""
    places = {word: place for place, word in enumerate(dict.fromkeys((*one.words, *other.words)))}
    moved = np.array([places[word] for word in other.words] or [0], dtype=np.int64)
    return PriceTable(
        tuple(places),
        np.concatenate([one.places, moved[other.places]], axis=1),
        np.concatenate([one.days, other.days], axis=1),
        np.concatenate([one.numbers, other.numbers], axis=1),
        word_places=places,
    )


def _keys(table: PriceTable) -> Ints:
    """Return a number per row that is equal for rows of the same offer (machine, region, term)."""
    size = max(1, len(table.words))
    key = np.zeros(len(table), dtype=np.int64)
    for name in KEY:
        _, key = np.unique(key * size + table.column(name), return_inverse=True)
    counts, count_of = np.unique(table.gpus, return_inverse=True)
    _, key = np.unique(key.reshape(-1) * max(1, len(counts)) + count_of.reshape(-1), return_inverse=True)
    numbers: Ints = key.reshape(-1).astype(np.int64)
    return numbers


def exact(table: PriceTable, row: int) -> Decimal:
    """Return the price per hour in a row as the exact decimal its source states."""
    return Decimal(table.word("price", row))


assert set(Observation.__struct_fields__) >= set(WORDS)
