"""Tables of steps whose seconds are known: lookups must equal the underlying function, within the grid and beyond."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.serving_cases import small
from whichgpu.estimate.serving.server import Server
from whichgpu.estimate.serving.service_times import ServiceTimes
from whichgpu.estimate.serving.step_tables import StepQueries, StepTables, TableSizes, batch_grid, coarse, tiled

TILE, ROW, BACK, SEQUENCE, LOOK = 5e-3, 1e-5, 2e-7, 3e-4, 4e-7


class Leaping:
    """A jump every 64 rows, plus terms per row, per attended token of a chunk, per sequence and per context token."""

    def decode(self, batch: ArrayLike, context: ArrayLike) -> np.ndarray:
        return self.mixed(0.0, 0.0, batch, context)

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> np.ndarray:
        read, reach, many, contexts = np.broadcast_arrays(
            *(np.asarray(one, dtype=float) for one in (tokens, context, batch, decode_context))
        )
        rows = read + many
        whole: np.ndarray = TILE * np.ceil(rows / 64) + ROW * rows + BACK * read * reach + many * (SEQUENCE + LOOK * contexts)
        return whole


STEPS = Leaping()
SIZES = TableSizes(40, 600, 2000)


def exact(tokens: float, reach: float, batch: float, context: float) -> float:
    return float(STEPS.mixed(tokens, reach, batch, context))


@pytest.fixture(scope="module")
def tables() -> StepTables:
    return StepTables(STEPS, SIZES)


@pytest.mark.parametrize("batch", [1, 2, 16, 17, 23, 39, 40])
@pytest.mark.parametrize("context", [1, 2, 31, 32, 33, 500, 2000, 2048, 5000])
def test_a_token_of_each_sequence(tables: StepTables, batch: int, context: int) -> None:
    assert tables.decode(batch, context) == pytest.approx(exact(0, 0, batch, context), rel=1e-9)


@pytest.mark.parametrize("tokens", [1, 2, 7, 63, 64, 65, 128, 129, 300, 599, 600])
def test_chunks_alone_with_decode_and_with_their_past_context(tables: StepTables, tokens: int) -> None:
    assert tables.mixed(tokens, 0.0, 0, 0.0) == pytest.approx(exact(tokens, 0, 0, 0), rel=1e-9)
    for reach in (1.0, 32.0, 700.0, 3000.0, -tokens / 4):
        assert tables.mixed(tokens, reach, 0, 0.0) == pytest.approx(exact(tokens, reach, 0, 0), rel=1e-9)
    for batch, context in ((1, 1), (3, 77), (18, 2000), (40, 4000)):
        alone = exact(tokens, 0, batch, context)
        assert tables.mixed(tokens, 0.0, batch, context) == pytest.approx(alone, abs=1e-9)
        assert tables.mixed(tokens, 50.0, batch, context) - alone == pytest.approx(50 * BACK * tokens, rel=1e-6)


@pytest.mark.parametrize(("context", "turns"), [(1, 1), (5, 20), (30, 2), (31, 2), (40, 24), (40, 25), (1000, 500), (3000, 9)])
def test_a_run_of_steps_is_its_first_and_its_last(tables: StepTables, context: int, turns: int) -> None:
    first, last = tables.run(5, context, turns)
    assert first == pytest.approx(exact(0, 0, 5, context), rel=1e-9)
    assert last == pytest.approx(exact(0, 0, 5, context + turns - 1), rel=1e-9)


def test_a_stage_s_batch_is_one_of_as_many_as_there_are_stages() -> None:
    """A rank's table is indexed by its own sequences; steps cover all ranks together."""
    tables = StepTables(STEPS, SIZES, stages=3)
    for batch, context in ((1, 100), (7, 333), (40, 1999)):
        assert tables.decode(batch, context) == pytest.approx(exact(0, 0, 3 * batch, context), rel=1e-9)


class Smooth(Leaping):
    """The same without leaps."""

    def mixed(self, tokens: ArrayLike, context: ArrayLike, batch: ArrayLike, decode_context: ArrayLike) -> np.ndarray:
        rows = np.asarray(tokens, dtype=float) + np.asarray(batch, dtype=float)
        whole: np.ndarray = super().mixed(tokens, context, batch, decode_context) - TILE * np.ceil(rows / 64)
        return whole


def test_fewer_questions_about_full_tiles_give_the_same() -> None:
    sizes = TableSizes(300, 2000, 1000)
    fine, plain = StepQueries(sizes, tile=64), StepQueries(sizes)
    assert len(fine.mixed[0]) < len(plain.mixed[0]) / 3
    assert len(fine.decode[0]) < len(plain.decode[0])
    tables = StepTables.from_values(fine.table_values(STEPS.decode(*fine.decode), STEPS.mixed(*fine.mixed)))
    for tokens in (1, 63, 64, 65, 128, 200, 1999, 2000):
        assert tables.mixed(tokens, 0.0, 0, 0.0) == pytest.approx(exact(tokens, 0, 0, 0), rel=1e-9)
        assert tables.mixed(tokens, 300.0, 0, 0.0) == pytest.approx(exact(tokens, 300, 0, 0), rel=1e-9)
    for batch in (1, 64, 65, 190, 300):
        assert tables.decode(batch, 77.0) == pytest.approx(exact(0, 0, batch, 77), rel=1e-9)
    smooth = Smooth()
    even = StepTables.from_values(fine.table_values(smooth.decode(*fine.decode), smooth.mixed(*fine.mixed)))
    for tokens, batch in ((3, 300), (700, 1), (1500, 77)):
        assert even.mixed(tokens, 0.0, batch, 500.0) == pytest.approx(float(smooth.mixed(tokens, 0, batch, 500)), rel=1e-9)


def test_grid_points_of_batches_and_tiles() -> None:
    assert batch_grid(1).tolist() == [1]
    assert batch_grid(16).tolist() == list(range(1, 17))
    assert batch_grid(17).tolist() == [*range(1, 17), 17]
    assert tiled(1).tolist() == [1, 2]
    assert {128, 129, 256, 257}.issubset(tiled(300).tolist())  # a full tile of queries, and one more
    assert tiled(600)[-1] >= 600
    assert 384 in tiled(384)
    assert 385 not in tiled(384)  # no more is needed
    assert 385 in tiled(385)
    assert np.diff(np.log2(coarse(tiled(600))[:-1])).min() > 0.9
    sizes = StepQueries(TableSizes(4, 10, 1)).decode
    assert set(sizes[1].tolist()) >= {1.0, 32.0, 64.0}  # contexts have lines to be read off even where all are short


def test_the_pace_of_a_server_by_hand() -> None:
    """Prompts of 100, answers of 50: seen half-way, so at 125 tokens."""
    server = Server(StepTables(STEPS, SIZES), small(16 * 125), small(16 * 125), 1, 1)
    pace = ServiceTimes.of(server, 100, 50)
    assert pace.slots == 16
    steps, reads = pace.curve
    assert steps == pytest.approx([exact(0, 0, batch, 125) for batch in range(1, 17)])
    beside = [exact(100, 0, batch, 125) - exact(0, 0, batch, 125) for batch in range(1, 17)]
    assert reads == pytest.approx([min(exact(100, 0, 0, 0), one) for one in beside])
    for batch in (1, 3, 16):
        assert pace.stay(batch) == pytest.approx(50 * steps[batch - 1] + batch * reads[batch - 1])
    assert pace.stay(0.2) == pytest.approx(50 * steps[0] + 0.2 * reads[0])
    assert pace.saturation == pytest.approx(16 / pace.stay(16))
    tight = small(16 * 125, max_sequences=17)  # memory takes fewer than might come: half an answer is read again
    crowded = ServiceTimes.of(Server(server.steps, tight, tight, 1, 1), 100, 50)
    assert crowded.saturation == pytest.approx(1 / (pace.stay(16) / 16 + 0.5 * 50 / 100 * reads[15]))
    limits = small(16 * 150, max_sequences=17, reserve_answers=True)
    assert ServiceTimes.of(Server(server.steps, limits, limits, 1, 1), 100, 50).saturation == pytest.approx(16 / pace.stay(16))


def test_long_prompt_attends_to_its_earlier_chunks() -> None:
    """1024 tokens in two chunks of 512: the second attends to the first."""
    limits = small(1 << 20, mixed_steps=False)
    pace = ServiceTimes.of(Server(StepTables(STEPS, TableSizes(16, 512, 2000)), limits, limits, 1, 1), 1024, 50)
    assert pace.curve[1] == pytest.approx([2 * exact(512, 0, 0, 0) + 512 * 512 * BACK] * 16)


def test_prefill_bound_server_has_concurrency_limited_by_admission() -> None:
    """A step takes 40 tokens; with 100 input and 100 output tokens each, so 20 are running."""
    limits = small(1 << 20, max_sequences=40, max_batched_tokens=40)
    pace = ServiceTimes.of(Server(StepTables(STEPS, TableSizes(40, 40, 2000)), limits, limits, 2, 3), 100, 100)
    assert pace.saturation == pytest.approx(6 * 20 / pace.stay(20))
    assert pace.rate_per_batch(12.0) == 2.0
