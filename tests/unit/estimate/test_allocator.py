"""The replay of the caching allocator, against cases worked out by hand from its rules."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from whichgpu.estimate.allocation_sequence import ALLOCATE, AllocationSequence, exact_sizes, replay_events
from whichgpu.estimate.allocator import MIB, Event, round_size, segment_size


def peaks(*events: Event) -> tuple[int, int]:
    replay = replay_events(events)
    return replay.peak_allocated, replay.peak_reserved


def test_requests_round_up_to_512_bytes_and_small_ones_share_a_2_mib_segment() -> None:
    assert peaks((1, 1), (2, 513), (3, 512)) == (512 + 1024 + 512, 2 * MIB)


def test_a_request_of_1_mib_is_small_and_one_byte_more_is_large() -> None:
    assert peaks((1, MIB)) == (MIB, 2 * MIB)
    assert peaks((1, MIB + 1)) == (MIB + 512, 20 * MIB)


def test_two_requests_of_9_mib_fit_one_20_mib_segment_and_a_third_needs_another() -> None:
    assert peaks((1, 9 * MIB), (2, 9 * MIB)) == (18 * MIB, 20 * MIB)
    assert peaks((1, 9 * MIB), (2, 9 * MIB), (3, 9 * MIB)) == (27 * MIB, 40 * MIB)


def test_from_10_mib_a_request_has_a_segment_of_its_own_rounded_to_2_mib() -> None:
    assert peaks((1, 10 * MIB)) == (10 * MIB, 10 * MIB)
    # What rounding leaves (1 MiB) is not more than 1 MiB, so it is not split off and counts as allocated.
    assert peaks((1, 11 * MIB)) == (12 * MIB, 12 * MIB)
    assert peaks((1, 10 * MIB + 512)) == (10 * MIB + 512, 12 * MIB)


def test_a_freed_block_is_used_again_and_the_remainder_stays_free() -> None:
    assert peaks((1, 30 * MIB), (1, -30 * MIB), (2, 12 * MIB), (3, 18 * MIB)) == (30 * MIB, 30 * MIB)


def test_smallest_sufficient_block_is_used() -> None:
    # 3 takes the 12 MiB block, so that the 40 MiB one still serves 4.
    events = [(1, 40 * MIB), (2, 12 * MIB), (1, -1), (2, -1), (3, 12 * MIB), (4, 40 * MIB)]
    assert peaks(*events) == (52 * MIB, 52 * MIB)


def test_free_neighbours_merge_within_a_segment_but_not_across_segments() -> None:
    within = [(1, 40 * MIB), (1, -1), (2, 20 * MIB), (3, 20 * MIB), (2, -1), (3, -1), (4, 40 * MIB)]
    assert peaks(*within) == (40 * MIB, 40 * MIB)
    across = [(1, 20 * MIB), (2, 20 * MIB), (1, -1), (2, -1), (3, 40 * MIB)]
    assert peaks(*across) == (40 * MIB, 80 * MIB)


def test_fragmentation_reserves_more_than_is_ever_allocated() -> None:
    # 2 lies in the middle of the first segment, so its free ends cannot serve 20 MiB together.
    events = [(1, 30 * MIB), (1, -1), (2, 12 * MIB), (3, 6 * MIB), (4, 12 * MIB), (2, -1), (4, -1), (5, 20 * MIB)]
    assert peaks(*events) == (30 * MIB, 50 * MIB)


def test_breakdown_lists_memory_allocated_at_the_peak() -> None:
    replay = replay_events(
        [(1, 4 * MIB), (2, 100), (3, 8 * MIB), (3, -1), (4, 512)], {1: "weights", 2: "input", 3: "activations"}
    )
    assert replay.peak_event == 2
    assert replay.breakdown == {"weights": 4 * MIB, "input": 512, "activations": 8 * MIB}


def test_zero_bytes_take_no_memory_and_unknown_frees_are_ignored() -> None:
    assert peaks() == (0, 0)
    assert peaks((7, -512)) == (0, 0)


@given(st.lists(st.integers(1, 64 * MIB), max_size=40), st.randoms(use_true_random=False))
def test_reserved_covers_allocated_and_allocated_covers_requested(sizes: list[int], chance: random.Random) -> None:
    events: list[Event] = []
    alive: dict[int, int] = {}
    peak = 0
    for id, size in enumerate(sizes):
        events.append((id, size))
        alive[id] = size
        peak = max(peak, sum(alive.values()))
        if chance.random() < 0.5:
            gone = chance.choice(sorted(alive))
            events.append((gone, -alive.pop(gone)))
    replay = replay_events(events)
    assert peak <= replay.peak_allocated <= replay.peak_reserved <= sum(segment_size(round_size(size)) for size in sizes)


def test_20_000_events_take_a_fraction_of_a_second() -> None:
    chance = random.Random(1)
    events: list[Event] = []
    alive: dict[int, int] = {}
    for id in range(12_000):
        alive[id] = chance.choice((512, 3 * MIB, 40 * MIB)) * chance.randint(1, 9)
        events.append((id, alive[id]))
        if len(alive) > 2_000:
            gone = chance.choice(list(alive))
            events.append((gone, -alive.pop(gone)))
    assert len(events) > 20_000
    began = time.perf_counter()
    replay_events(events)
    assert time.perf_counter() - began < 1  # a goal of 0.2 s, and room for a busy machine


def test_of_two_deaths_the_first_counts() -> None:
    twice = AllocationSequence([ALLOCATE, 0, ALLOCATE, 0, ALLOCATE], ["a", "b", "c"]).replay(
        exact_sizes([4 * MIB, 4 * MIB, 4 * MIB])
    )
    once = AllocationSequence([ALLOCATE, 0, ALLOCATE, ALLOCATE], ["a", "b", "c"]).replay(exact_sizes([4 * MIB, 4 * MIB, 4 * MIB]))
    assert (twice.peak_allocated, twice.peak_reserved, twice.breakdown) == (
        once.peak_allocated,
        once.peak_reserved,
        {"b": 4 * MIB, "c": 4 * MIB},
    )


def test_sizes_beyond_a_machine_word_are_counted_exactly() -> None:
    size = 2 * MIB * 10**15
    replay = replay_events([(1, size), (2, size), (2, -1), (3, size + 2 * MIB)], {1: "weights"})
    assert (replay.peak_allocated, replay.peak_reserved) == (2 * size + 2 * MIB, 3 * size + 2 * MIB)
    assert replay.breakdown == {"weights": size, "other": size + 2 * MIB}
