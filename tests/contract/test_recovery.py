"""E-042 … E-045: three kinds of lost leases, three events, each guarded by the lease observed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.desk import Desk


def drop_lease(desk: Desk, item: int) -> None:
    desk.db.rows("delete from eve.held_slot where queue_id = %s and item = %s", [desk.id, item])


def forge_lease(desk: Desk, item: int, token: int, pool: str = "local") -> None:
    """A lease row that the ledger knows nothing of, as only a superuser can write one."""
    desk.db.rows(
        "insert into eve.held_slot (queue_id, item, token, pool, number, principal, worker,"
        " acquired_at, expires_at) values (%s, %s, %s, %s, 1, 't_worker', 'old', eve.now(),"
        " eve.now() + interval '1 day')",
        [desk.id, item, token, pool],
    )


def test_e_042_an_expired_lease_is_recovered_by_its_own_event(desk: Desk) -> None:
    item = desk.item()
    lease = desk.lease(item=item, worker="w7")
    desk.clock.set(lease.expires_at - timedelta(microseconds=1))
    assert desk.sweep().recovered == 0
    desk.lapse(lease)
    assert desk.call("t_worker", "eve_recover").recovered == 1
    event = desk.events(item)[-1]
    assert (event.kind, event.phase, event.token) == ("lease_expired", "ready", lease.token)
    assert event.data["lease"]["worker"] == "w7"
    assert desk.call("t_worker", "eve_recover").recovered == 0
    assert desk.lease(item=item).token == lease.token + 1


@pytest.mark.parametrize("by", ["next acquire", "full pool", "named acquire", "turn"])
def test_e_042_whoever_comes_by_recovers_it(desk: Desk, by: str) -> None:
    """Housekeeping on the way: nobody has to sweep."""
    item = desk.item()
    lease = desk.lease(item=item)
    desk.lapse(lease)
    if by == "named acquire":
        desk.clock.advance(1)
        again = desk.acquire(item=item)
    elif by == "turn":
        desk.clock.advance(1)
        again = desk.calls("t_worker", "eve_turn", worker="w")[-1]
    else:
        again = desk.acquire()
    assert (again.granted, again.item, again.token) == (True, item, lease.token + 1)
    assert desk.kinds(item)[-2:] == ["lease_expired", "acquired"]


def test_e_043_a_leased_item_without_a_lease_row_is_recovered(desk: Desk) -> None:
    item = desk.item()
    lease = desk.lease(item=item)
    drop_lease(desk, item)
    with desk.refused("not_lease_holder"):
        desk.complete(lease)
    assert not desk.acquire().granted
    swept = desk.sweep()
    assert (swept.recovered, swept.repaired) == (1, 1)
    event = desk.events(item)[-1]
    assert (event.kind, event.phase, event.token) == ("lease_missing", "ready", lease.token)
    assert desk.lease(item=item).token == lease.token + 1


def test_e_044_a_lease_that_the_ledger_superseded_is_recovered(desk: Desk) -> None:
    """The row's token is older than the ledger's, and no row has the ledger's."""
    item = desk.item()
    desk.hold("eve_return", desk.lease(item=item))
    lease = desk.lease(item=item)
    drop_lease(desk, item)
    forge_lease(desk, item, lease.token - 1)
    assert desk.call("t_operator", "eve_recover").recovered == 1
    event = desk.events(item)[-1]
    assert (event.kind, event.phase) == ("lease_superseded", "ready")
    assert desk.live() == 0
    assert desk.lease(item=item).token == lease.token + 1


def test_e_044_beside_the_live_lease_only_the_old_row_goes(desk: Desk) -> None:
    item = desk.item()
    desk.hold("eve_return", desk.lease(item=item))
    lease = desk.lease(item=item)
    forge_lease(desk, item, lease.token - 1)
    assert desk.sweep().recovered == 1
    event = desk.events(item)[-1]
    assert (event.kind, event.phase) == ("lease_superseded", "leased")
    assert desk.live() == 1
    assert desk.complete(lease).phase == "verified"


def test_e_044_a_lease_row_of_no_leased_item_just_goes(desk: Desk) -> None:
    """There is no lease to end: the history stays, the row and its slot do not."""
    item = desk.done()
    before = desk.kinds(item)
    forge_lease(desk, item, 1)
    assert not desk.audit().clean
    desk.sweep()
    assert desk.kinds(item) == before
    assert desk.live() == 0


def recovered_one(desk: Desk, item: int, token: int, kind: str) -> Any:
    """The recovery of one lease as it was observed, whatever became of it meanwhile."""
    return desk.db.value(
        """
        select eve._recover_one(c, %s, %s, %s, eve.now())
        from eve.queue as q
        cross join lateral (select jsonb_populate_record(null::eve.caller, jsonb_build_object(
            'queue_id', q.queue_id, 'queue', q.name, 'actor', 'postgres', 'principal', 'postgres',
            'epoch', q.epoch)) as c) as x
        where q.name = %s
        """,
        [item, token, kind, desk.queue],
    )


def test_e_045_each_recovery_is_guarded_by_the_lease_observed(desk: Desk) -> None:
    """Observed token 1; by now renewed is another story, re-leased and ended are no-ops."""
    item = desk.item()
    first = desk.lease(item=item)
    desk.hold("eve_return", first)
    for kind in ("lease_expired", "lease_missing"):
        assert recovered_one(desk, item, first.token, kind) is None  # ready: nothing to recover
    second = desk.lease(item=item)
    for kind in ("lease_expired", "lease_missing"):
        assert recovered_one(desk, item, first.token, kind) is None  # leased anew
    assert desk.kinds(item)[-1] == "acquired"
    desk.complete(second)
    for kind in ("lease_expired", "lease_missing", "lease_superseded"):
        assert recovered_one(desk, item, second.token, kind) is None  # ended
    assert desk.kinds(item)[-1] == "completed"


def test_e_045_a_renewed_lease_is_not_recovered(desk: Desk) -> None:
    """Not at the instant at which it would have lapsed."""
    lease = desk.lease(item=desk.item(), ttl="60 s")
    was = lease.expires_at
    desk.clock.set(was - timedelta(seconds=1))
    desk.hold("eve_renew", lease, ttl="900 s")
    desk.clock.set(was)
    assert desk.sweep().recovered == 0
    assert desk.complete(lease).accepted


def test_recovered_items_keep_their_place(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    old = desk.item()
    since = desk.state(old).ready_since
    desk.clock.advance(10)
    young = desk.item()
    desk.lapse(desk.lease(item=old))
    desk.sweep()
    assert desk.state(old).ready_since == since
    assert [desk.lease().item, young] == [old, young]


def test_one_bad_row_is_reported_and_skipped(desk: Desk) -> None:
    """A lease whose item cannot be folded any more does not keep the others from recovery."""
    desk.approve("cloud", 3)
    for _ in range(3):
        desk.item()
    good, bad, other = desk.leases(3)
    desk.db.rows(
        "update eve.work_item set queue_state.version = 1 where queue_id = %s and item = %s",
        [desk.id, bad.item],
    )
    desk.lapse(other)
    swept = desk.sweep()
    assert swept.recovered == 2
    assert [(f["item"], f["act"], f["sqlstate"]) for f in swept.faults] == [
        (bad.item, "lease_expired", "23505")
    ]
    assert [desk.phase(x.item) for x in (good, bad, other)] == ["ready", "leased", "ready"]
    assert not desk.audit().clean
    desk.call("t_operator", "eve_rebuild")
    assert desk.sweep().recovered == 1
    assert desk.phase(bad.item) == "ready"


def spoil(desk: Desk, item: int) -> None:
    """A version 2 written beside the fold makes the item's next event impossible."""
    desk.spoiled = True
    desk.db.rows(
        "insert into eve.ledger select queue_id, item, 2, tx, kind, phase, at, actor, principal,"
        " worker, epoch, revision, token, pool, slot, due_at, rank, attempts, reason, data, hash"
        " from eve.ledger where queue_id = %s and item = %s",
        [desk.id, item],
    )


@pytest.mark.parametrize(
    ("arguments", "act", "count"),
    [
        ({"not_before": "2031-06-01 13:00Z"}, "released", "released"),
        ({"deadline": "2031-06-01 13:00Z"}, "expired", "expired"),
    ],
)
def test_bad_rows_are_skipped_in_everything_that_comes_due(
    desk: Desk, arguments: dict[str, object], act: str, count: str
) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    bad = desk.item(**arguments)
    spoil(desk, bad)
    good = desk.item(**arguments)
    phase = desk.phase(bad)
    desk.clock.set("2031-06-01 13:00Z")
    swept = desk.sweep()
    assert [(f["item"], f["act"]) for f in swept.faults] == [(bad, act)], swept.faults
    assert getattr(swept, count) == 1
    assert desk.phase(bad) == phase
    assert desk.phase(good) == {"released": "ready", "expired": "expired"}[act]


def test_a_bad_child_is_skipped_when_edges_are_looked_at(desk: Desk) -> None:
    children = [desk.item(after=[name]) for name in ("b", "b")]
    desk.db.rows("update eve.dependency set open = false where queue_id = %s", [desk.id])
    spoil(desk, children[0])
    swept = desk.sweep()
    assert [f["item"] for f in swept.faults] == [children[0]]
    assert [desk.phase(child) for child in children] == ["held", "ready"]


def test_slots_that_rows_were_lost_of_are_made_right(desk: Desk) -> None:
    desk.approve("cloud", 3)
    desk.db.rows("delete from eve.free_slot where queue_id = %s", [desk.id])
    assert desk.audit().slots == "off"
    assert desk.sweep().repaired == 4
    assert desk.audit().clean
    desk.db.rows(
        "insert into eve.free_slot (queue_id, pool, number)"
        " select %s, 'cloud', n from generate_series(2, 6) as n",
        [desk.id],
    )
    assert desk.audit().slots == "off"
    assert desk.sweep().repaired == 5
    assert desk.audit().clean
    for _ in range(5):
        desk.item()
    assert len(desk.calls("t_worker", "eve_acquire", worker="w", max_items=5)) == 3


def test_too_many_leases_for_a_pool_become_its_surplus(desk: Desk) -> None:
    """Forged rows that name leased items cannot be; a forged slot number can."""
    desk.approve("cloud", 1)
    items = [desk.item() for _ in range(3)]
    first = desk.lease(item=items[0])
    desk.db.rows(
        "insert into eve.free_slot (queue_id, pool, number) values (%s, 'cloud', 9)", [desk.id]
    )
    second = desk.lease(item=items[1])
    assert desk.audit().slots == "off"
    desk.call("t_operator", "eve_recover")
    assert desk.audit().clean
    desk.complete(first)
    assert desk.acquire().refusal == "concurrency_exhausted"
    desk.complete(second)
    assert desk.lease(item=items[2]).granted
