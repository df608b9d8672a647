"""The index of the evidence table has the table's own rows."""

from __future__ import annotations

import hashlib

import pytest

from whichgpu.catalog.evidence import TABLE, evidence_sources, measurements
from whichgpu.catalog.evidence_search.index import evidence_index


def test_the_index_was_made_from_the_table() -> None:
    digest = hashlib.sha256(TABLE.read_bytes()).hexdigest()
    assert evidence_index().table_digest == digest, "the evidence table changed: run tools/digests"


def test_its_rows_are_those_of_the_table() -> None:
    index, rows = evidence_index(), measurements()
    assert len(index.operators) == len(rows)
    for place in range(0, len(rows), 97):
        row = rows[place]
        assert index.words("source").of(place) == row.source
        assert index.words("gpu").of(place) == row.gpu
        assert index.number("row", place) == row.row
        assert index.number("batch", place) == (row.request.get("batch") or None)
        assert float(index.numbers("seconds")[place]) == pytest.approx(row.seconds, rel=1e-6)
        assert bool(index.operators[place]) == (row.kind == "op")


def test_every_row_names_a_source_with_address_and_licence() -> None:
    sources = evidence_sources()
    for id in evidence_index().words("source").words:
        assert sources[id].url
        assert sources[id].licence
