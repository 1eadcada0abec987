"""Shards are handed out as replicas ask; what a dead one had is not lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchjobs.supervision.pool import ShardPool


def drained(pool: ShardPool, replica: int) -> list[int]:
    found = []
    while (taken := pool.take(replica)) is not None:
        found.append(taken[0])
    return found


def test_each_replica_gets_neighbours_and_then_half_of_what_the_slower_one_has_left() -> None:
    pool = ShardPool(range(8), 2)
    assert [pool.take(1), pool.take(0)] == [(4, False), (0, False)]
    assert drained(pool, 0) == [1, 2, 3, 6, 7, 5]
    assert pool.take(1) is None


def test_shards_of_a_dead_replica_go_to_whoever_asks_and_committed_ones_do_not() -> None:
    pool = ShardPool(range(4), 2)
    assert [pool.take(0), pool.take(0), pool.take(1)] == [(0, False), (1, False), (2, False)]
    pool.committed(0, 0)
    pool.ended(0)
    assert [pool.take(1), pool.take(1), pool.take(1)] == [(1, True), (3, False), None]


def test_suspicious_shards_wait_for_the_next_life_of_their_replica() -> None:
    pool = ShardPool(range(4), 2)
    assert [pool.take(0), pool.take(0)] == [(0, False), (1, False)]
    pool.ended(0, suspicious={1})
    assert drained(pool, 1) == [0, 2, 3]
    assert pool.take(0) == (1, True)


def test_what_was_kept_for_a_replica_that_gave_up_is_for_the_others() -> None:
    pool = ShardPool(range(2), 2)
    pool.take(0)
    pool.ended(0, suspicious={0})
    pool.gave_up(0)
    assert drained(pool, 1) == [0, 1]


@given(
    st.integers(0, 40), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.sampled_from("tcd")), max_size=80)
)
def test_each_shard_is_committed_once_whatever_happens(
    shards: int, replicas: int, steps: list[tuple[int, str]]
) -> None:
    pool = ShardPool(range(shards), replicas)
    held: dict[int, list[int]] = {n: [] for n in range(replicas)}
    committed = []
    for who, what in steps:
        replica = who % replicas
        if what == "t" and (taken := pool.take(replica)) is not None:
            held[replica].append(taken[0])
        elif what == "c" and held[replica]:
            committed.append(held[replica].pop())
            pool.committed(replica, committed[-1])
        elif what == "d":
            pool.ended(replica, set(held[replica][::2]))
            pool.gave_up(replica)
            held[replica] = []
    rest = [shard for shards_held in held.values() for shard in shards_held]
    assert sorted([*committed, *rest, *drained(pool, 0)]) == list(range(shards))
