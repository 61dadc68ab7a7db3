"""E-019 … E-021: rank, aged by one class an interval, then the longest ready."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from support.database import Database
from support.desk import Desk

T0 = datetime(2031, 6, 1, 12, tzinfo=UTC)
AGING = 3600


def drained(desk: Desk) -> list[int]:
    """The items in the order in which one worker gets them."""
    order: list[int] = []
    while True:
        answer = desk.acquire(ttl="86400 s")
        if not answer.granted:
            return order
        order.append(answer.item)
        desk.complete(answer)


def expected(snapshot: dict[int, tuple[int, datetime]], now: datetime) -> list[int]:
    """The rule, sorted by brute force: a pure function of a snapshot and a clock."""

    def place(item: int) -> tuple[int, datetime, int]:
        rank, since = snapshot[item]
        aged = (now - since) // timedelta(seconds=AGING)
        return max(0, rank - aged), since, item

    return sorted(snapshot, key=place)


def test_e_019_rank_first_then_the_longest_ready(desk: Desk) -> None:
    items = {}
    for second, rank in enumerate((3, 2, 1, 0, 0, 1, 2, 3)):
        desk.clock.set(T0 + timedelta(seconds=second))
        items[desk.item(priority_class=rank)] = (rank, desk.clock.now())
    order = drained(desk)
    assert order == expected(items, desk.clock.now())
    assert [items[item][0] for item in order] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_e_019_waiting_ages_one_class_an_interval(desk: Desk) -> None:
    desk.clock.set(T0)
    old = desk.item(priority_class=2)
    desk.clock.set(T0 + timedelta(seconds=AGING - 1))
    young = desk.item(priority_class=1)
    assert expected({old: (2, T0), young: (1, desk.clock.now())}, desk.clock.now())[0] == young
    desk.clock.set(T0 + timedelta(seconds=AGING))
    assert drained(desk) == [old, young]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_e_020_the_starvation_ceiling_is_rank_times_interval(desk: Desk, rank: int) -> None:
    """At that very instant it sorts before any rank 0 that became ready later; not before it."""
    ceiling = T0 + timedelta(seconds=rank * AGING)
    desk.clock.set(T0)
    old = desk.item(priority_class=rank)
    desk.clock.set(T0 + timedelta(microseconds=1))
    first = desk.item(priority_class=0)
    desk.clock.set(ceiling - timedelta(microseconds=1))
    second = desk.item(priority_class=0)
    lease = desk.lease()
    assert lease.item == first
    desk.complete(lease)
    assert expected({old: (rank, T0), second: (0, desk.clock.now())}, desk.clock.now())[0] == second
    desk.clock.set(ceiling)
    assert desk.lease().item == old


def test_e_020_an_exact_tie_goes_to_the_earlier_item(desk: Desk) -> None:
    desk.clock.set(T0)
    items = [desk.item(priority_class=1) for _ in range(4)]
    assert drained(desk) == items


def test_e_020_a_retried_item_keeps_its_place(desk: Desk) -> None:
    """And one that waited for its time, or was unparked, stands where that ended."""
    desk.clock.set(T0)
    desk.define(replay_class="safe", backoff_base="0 s")
    retried, returned, lapsed = (desk.item() for _ in range(3))
    parked = desk.quarantined()
    timed = desk.item(not_before=T0 + timedelta(seconds=30))
    desk.clock.set(T0 + timedelta(seconds=10))
    young = desk.item()
    for item, verb in ((returned, "eve_return"), (retried, "eve_fail")):
        desk.hold(verb, desk.lease(item=item))
    lease = desk.lease(item=lapsed, ttl="60 s")
    desk.lapse(lease)
    desk.call("t_human", "eve_unpark", item=parked)
    desk.sweep()
    assert drained(desk) == [retried, returned, lapsed, young, timed, parked]


@pytest.mark.parametrize("seed", range(4))
def test_e_021_the_picks_are_the_sorted_snapshot(desk: Desk, seed: int) -> None:
    """A random backlog whose ages straddle and hit whole intervals, two lanes, some late."""
    chance = random.Random(seed)
    desk.define("apart", replay_class="safe", own_lane=True)
    snapshot: dict[int, tuple[int, datetime]] = {}
    now = T0 + timedelta(seconds=4 * AGING)
    ages = [0, 1, AGING - 1, AGING, AGING + 1, 2 * AGING, 3 * AGING, 3 * AGING + 1, 4 * AGING]
    for age in sorted((chance.choice(ages) for _ in range(24)), reverse=True):
        desk.clock.set(now - timedelta(seconds=age))
        rank = chance.randrange(4)
        item = desk.item(priority_class=rank, **{"class": chance.choice(["default", "apart"])})
        snapshot[item] = (rank, now - timedelta(seconds=age))
    desk.clock.set(now)
    for item in chance.sample(list(snapshot), 5):
        desk.hold("eve_return", desk.lease(item=item))
    assert drained(desk) == expected(snapshot, now)


def test_e_021_the_order_is_a_pure_function(shared: Database) -> None:
    """Immutable, so that the bound can be read off without a run."""
    assert shared.value(
        "select provolatile = 'i' from pg_proc where oid = 'eve._effective_rank'::regproc"
    )
    wrong = shared.rows(
        """
        select r.rank, s.age
        from generate_series(0, 3) as r (rank)
        cross join generate_series(0, 14400, 300) as s (age)
        where eve._effective_rank(r.rank::smallint, %(t)s, interval '3600 s',
                %(t)s::timestamptz + make_interval(secs => s.age))
            <> greatest(0, r.rank - s.age / 3600)
            or s.age >= 10800 and eve._effective_rank(r.rank::smallint, %(t)s,
                interval '3600 s', %(t)s::timestamptz + make_interval(secs => s.age)) <> 0
        """,
        {"t": T0},
    )
    assert wrong == []
