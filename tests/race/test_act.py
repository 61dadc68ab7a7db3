"""Acts against takes and finishes, two of a kind against each other: the second waits or passes."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.desk import Desk
from support.race import LEVELS, refused
from support.session import PATIENCE, Session

Open = Callable[[str], Session]

ACTS: dict[str, tuple[str, dict[str, object], str]] = {  # verb → role, arguments, phase after it
    "eve_cancel": ("t_operator", {}, "cancelled"),
    "eve_reject": ("t_human", {"reason": "no"}, "rejected"),
    "eve_reprioritise": ("t_operator", {"priority_class": 0}, "ready"),
}


@pytest.mark.parametrize("verb", ACTS)
def test_an_act_waits_for_a_take_that_rolls_back(desk: Desk, session: Open, verb: str) -> None:
    role, arguments, phase = ACTS[verb]
    item = desk.item()
    a, b = session("t_worker"), session(role)
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="w").granted
    pending = b.start_call(verb, queue="q", item=item, **arguments)
    b.until_waiting()
    a.execute("rollback")
    assert pending.result(PATIENCE)[0].done
    assert desk.phase(item) == phase
    assert "acquired" not in desk.kinds(item)


@pytest.mark.parametrize("verb", ACTS)
def test_an_act_waits_for_a_take_that_commits(desk: Desk, session: Open, verb: str) -> None:
    """Then it is an act on leased work: the token is superseded, or the phase is wrong."""
    role, arguments, phase = ACTS[verb]
    item = desk.item()
    a, b = session("t_worker"), session(role)
    a.execute("begin")
    lease = a.call("eve_acquire", queue="q", worker="w")
    pending = b.start_call(verb, queue="q", item=item, **arguments)
    b.until_waiting()
    a.execute("commit")
    if verb == "eve_reprioritise":
        with pytest.raises(psycopg.Error) as error:
            pending.result(PATIENCE)
        assert error.value.sqlstate == "55000"
        assert desk.complete(lease).accepted
        return
    pending.result(PATIENCE)
    assert desk.phase(item) == phase
    with desk.refused("stale_fence"):
        desk.complete(lease)
    assert desk.live() == 0
    desk.item()
    assert desk.acquire().granted


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("verb", ACTS)
def test_a_take_passes_over_what_an_act_holds(
    desk: Desk, session: Open, verb: str, ending: str
) -> None:
    role, arguments, phase = ACTS[verb]
    desk.approve("cloud", 4)
    item, other = desk.item(), desk.item()
    a = session(role)
    a.execute("begin")
    a.call(verb, queue="q", item=item, **arguments)
    busy = desk.acquire(item=item)
    assert (busy.refusal, busy.detail["blocked"]) == (
        "not_acquirable", "another transaction is taking it",
    )  # fmt: skip
    assert desk.acquire().item == other
    a.execute(ending)
    now = phase if ending == "commit" else "ready"
    assert desk.phase(item) == now
    assert desk.acquire(item=item).granted == (now == "ready")


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("verb", ACTS)
def test_an_act_waits_for_a_completion(desk: Desk, session: Open, verb: str, ending: str) -> None:
    role, arguments, phase = ACTS[verb]
    item = desk.item()
    lease = desk.lease()
    a, b = session("t_worker"), session(role)
    a.execute("begin")
    a.call("eve_complete", queue="q", item=item, token=lease.token)
    pending = b.start_call(verb, queue="q", item=item, **arguments)
    b.until_waiting()
    a.execute(ending)
    wrong = verb == "eve_reprioritise" or (verb == "eve_reject" and ending == "commit")
    if wrong:
        with pytest.raises(psycopg.Error) as error:
            pending.result(PATIENCE)
        assert error.value.sqlstate == "55000"
    else:
        assert pending.result(PATIENCE)[0].done == (ending == "rollback")
    assert desk.phase(item) == (
        "verified" if ending == "commit" else "leased" if wrong else phase
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("verb", ["eve_cancel", "eve_reject"])
def test_a_completion_waits_for_an_act(desk: Desk, session: Open, verb: str, ending: str) -> None:
    role, arguments, phase = ACTS[verb]
    item = desk.item()
    lease = desk.lease()
    a, b = session(role), session("t_worker")
    a.execute("begin")
    a.call(verb, queue="q", item=item, **arguments)
    pending = b.start_call("eve_complete", queue="q", item=item, token=lease.token)
    b.until_waiting()
    a.execute(ending)
    if ending == "commit":
        with pytest.raises(psycopg.Error) as error:
            pending.result(PATIENCE)
        assert error.value.sqlstate == "VE301"
    else:
        assert pending.result(PATIENCE)[0].accepted
    assert desk.phase(item) == (phase if ending == "commit" else "verified")


@pytest.mark.parametrize("level", LEVELS)
def test_of_two_unparks_one_counts(desk: Desk, session: Open, level: str) -> None:
    item = desk.quarantined()
    a, b = session("t_human"), session("t_human")
    a.execute("begin")
    b.execute(f"begin isolation level {level}")
    b.execute("select 1")
    a.call("eve_unpark", queue="q", item=item)
    pending = b.start_call("eve_unpark", queue="q", item=item)
    b.until_waiting()
    assert desk.acquire(item=item).refusal == "quarantined"
    a.execute("commit")
    with pytest.raises(psycopg.Error) as error:
        pending.result(PATIENCE)
    # Without a door row to go for it holds the item already: the caller repeats.
    assert error.value.sqlstate == "40001"
    b.execute("rollback")
    assert refused(b, "eve_unpark", queue="q", item=item) == "55000"
    assert desk.kinds(item).count("unparked") == 1
    assert desk.acquire(item=item).granted


@pytest.mark.parametrize("level", LEVELS)
def test_of_two_cancels_one_counts(desk: Desk, session: Open, level: str) -> None:
    item = desk.item()
    a, b = session("t_operator"), session("t_operator")
    a.execute("begin")
    b.execute(f"begin isolation level {level}")
    b.execute("select 1")
    assert a.call("eve_cancel", queue="q", item=item).done
    pending = b.start_call("eve_cancel", queue="q", item=item)
    b.until_waiting()
    a.execute("commit")
    if level == "read committed":
        assert not pending.result(PATIENCE)[0].done
    else:
        with pytest.raises(psycopg.errors.SerializationFailure):
            pending.result(PATIENCE)
    b.execute("rollback")
    assert desk.kinds(item).count("cancelled") == 1


def lapsed(desk: Desk, number: int) -> list[int]:
    """Leases that have lapsed at the present instant."""
    desk.clock.set("2031-06-01 12:00Z")
    desk.approve("cloud", number)
    for _ in range(number):
        desk.item()
    leases = desk.leases(number)
    desk.lapse(leases[0])
    return [row.item for row in leases]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("level", LEVELS)
def test_of_two_sweepers_one_recovers(desk: Desk, session: Open, level: str, ending: str) -> None:
    """The second does not wait: it leaves to the first what that one holds."""
    items = lapsed(desk, 3)
    a, b = session("t_operator"), session("t_operator")
    a.execute("begin")
    b.execute(f"begin isolation level {level}")
    b.execute("select 1")
    assert a.call("eve_sweep", queue="q").recovered == 3
    answer = b.call("eve_sweep", queue="q")
    assert (answer.recovered, answer.repaired, answer.faults) == (0, 0, [])
    a.execute(ending)
    b.execute("commit")
    assert desk.sweep().recovered == (3 if ending == "rollback" else 0)
    for item in items:
        assert desk.kinds(item) == ["admitted", "acquired", "lease_expired"]


def test_of_two_housekeepers_one_keeps_house(desk: Desk, session: Open) -> None:
    """The second does not wait, and not again once the first has committed."""
    items = lapsed(desk, 3)
    a, b = session("t_worker"), session("t_worker2")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="a", pool="local").granted
    assert not b.call("eve_acquire", queue="q", worker="b", pool="local").granted

    def ticks() -> int:
        return int(desk.db.value("select count(*) from eve.tick where queue_id = %s", [desk.id]))

    before = ticks()
    a.execute("commit")
    assert ticks() == before + 1
    b.call("eve_acquire", queue="q", worker="b", pool="local")
    assert ticks() == before + 1
    for item in items:
        assert desk.kinds(item).count("lease_expired") == 1


def test_housekeeping_that_rolls_back_is_done_by_the_next(desk: Desk, session: Open) -> None:
    items = lapsed(desk, 2)
    a, b = session("t_worker"), session("t_worker2")
    a.execute("begin")
    a.call("eve_acquire", queue="q", worker="a", pool="local")
    a.execute("rollback")
    b.call("eve_acquire", queue="q", worker="b", pool="local")
    for item in items:
        assert desk.kinds(item).count("lease_expired") == 1


def test_a_new_revision_and_an_acquisition_do_not_wait(desk: Desk, session: Open) -> None:
    """An uncommitted revision judges nobody; a committed one the next, by the stricter of both."""
    desk.approve("cloud", 4)
    for _ in range(3):
        desk.item()
    op, a = session("t_operator"), session("t_worker")
    a.execute("begin")
    first = a.call("eve_acquire", queue="q", worker="w")
    op.execute("begin")
    op.call("eve_define_class", **{"queue": "q", "class": "default", "replay_class": "safe",
            "policy": {"attempts": 1, "ttl": "120 s"}})  # fmt: skip
    second = a.call("eve_acquire", queue="q", worker="w")
    op.execute("commit")
    third = a.call("eve_acquire", queue="q", worker="w")
    a.execute("commit")
    assert [row.revision for row in (first, second, third)] == [1, 1, 2]
    assert [row.attempts_left for row in (first, second, third)] == [2, 2, 0]


def test_an_approval_and_acquisitions_do_not_wait(desk: Desk, session: Open) -> None:
    desk.item()
    desk.item()
    human, a = session("t_human"), session("t_worker")
    human.execute("begin")
    human.call("eve_approve_slots", queue="q", pool="cloud", slots=2, default_pool=False)
    with desk.refused("P0002"):
        desk.acquire(pool="cloud")
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="w").pool == "local"
    human.execute("commit")
    assert a.call("eve_acquire", queue="q", worker="w", pool="cloud").granted
    a.execute("rollback")
    assert desk.acquire(pool="cloud").granted


@pytest.mark.parametrize("what", [{"class": "default"}, {"pool": "local"}])
def test_a_pause_and_an_acquisition_do_not_wait(
    desk: Desk, session: Open, what: dict[str, object]
) -> None:
    desk.item()
    op, a = session("t_operator"), session("t_worker")
    op.execute("begin")
    op.call("eve_pause", queue="q", **what)
    a.execute("begin")
    assert a.call("eve_acquire", queue="q", worker="w").granted
    op.execute("commit")
    a.execute("rollback")
    assert not desk.acquire().granted


def test_a_keeper_that_leaves_its_transaction_open_is_passed(desk: Desk, session: Open) -> None:
    """Others come by, seconds later: none of them waits, and what becomes due is done."""
    items = lapsed(desk, 2)
    a, b = session("t_worker"), session("t_worker2")
    a.execute("begin")
    a.call("eve_acquire", queue="q", worker="a", pool="local")
    desk.approve("cloud", 8)
    later = desk.item()
    desk.lease(item=later)
    b.execute("set lock_timeout to '5 s'")
    for _ in range(6):
        desk.clock.advance(200)
        b.call("eve_acquire", queue="q", worker="b", pool="local")
    assert "lease_expired" in desk.kinds(later)
    a.execute("rollback")
    desk.sweep()
    for item in items:
        assert "lease_expired" in desk.kinds(item)
