"""eve_fence held open: renewal passes, an end waits, a recovery and an expiry skip."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.database import Row
from support.desk import Desk
from support.race import LEVELS
from support.session import PATIENCE, Session

Open = Callable[[str], Session]


@pytest.fixture
def lease(desk: Desk) -> Row:
    desk.clock.set("2031-06-01 12:00Z")
    desk.approve("cloud", 4)
    desk.item()
    return desk.lease()


def fenced(session: Open, lease: Row, level: str = "read committed") -> Session:
    opened = session("t_worker")
    opened.execute(f"begin isolation level {level}")
    opened.call("eve_fence", queue="q", item=lease.item, token=lease.token)
    return opened


@pytest.mark.parametrize("level", LEVELS)
def test_a_renewal_passes(desk: Desk, session: Open, lease: Row, level: str) -> None:
    a = fenced(session, lease, level)
    desk.clock.advance(60)
    renewed = desk.hold("eve_renew", lease, checkpoint={"n": 1})
    assert renewed.expires_at > lease.expires_at
    a.execute("commit")
    assert desk.phase(lease.item) == "leased"


ENDS: dict[str, tuple[str, dict[str, object]]] = {
    "eve_complete": ("t_worker", {"token": True}),
    "eve_fail": ("t_worker", {"token": True}),
    "eve_return": ("t_worker", {"token": True}),
    "eve_cancel": ("t_operator", {}),
    "eve_reject": ("t_human", {"reason": "no"}),
}


@pytest.mark.parametrize("verb", ENDS)
def test_an_end_waits(desk: Desk, session: Open, lease: Row, verb: str) -> None:
    """And the fenced transaction may still renew meanwhile."""
    role, arguments = ENDS[verb]
    if "token" in arguments:
        arguments = {"token": lease.token}
    a, b = fenced(session, lease), session(role)
    pending = b.start_call(verb, queue="q", item=lease.item, **arguments)
    b.until_waiting()
    desk.clock.advance(30)
    renewed = a.call("eve_renew", queue="q", item=lease.item, token=lease.token)
    assert renewed.expires_at > lease.expires_at
    assert not pending.done()
    a.execute("commit")
    pending.result(PATIENCE)
    assert desk.phase(lease.item) != "leased"


def test_an_end_that_waited_past_the_lease_is_refused(
    desk: Desk, session: Open, lease: Row
) -> None:
    """Liveness is judged after the lock."""
    a, b = fenced(session, lease), session("t_worker")
    pending = b.start_call("eve_complete", queue="q", item=lease.item, token=lease.token)
    b.until_waiting()
    desk.lapse(lease)
    a.execute("commit")
    with pytest.raises(psycopg.Error) as refused:
        pending.result(PATIENCE)
    assert refused.value.sqlstate == "VE304"
    assert desk.phase(lease.item) == "leased"


@pytest.mark.parametrize("way", ["acquire", "sweep", "recover", "turn"])
def test_a_recovery_skips(desk: Desk, session: Open, lease: Row, way: str) -> None:
    other = desk.item()
    lost = desk.lease(item=other)
    a = fenced(session, lease)
    desk.lapse(lease)

    def come_by() -> None:
        if way == "acquire":
            desk.acquire(role="t_worker2", pool="local")
        elif way == "turn":
            desk.calls("t_worker2", "eve_turn", worker="w", pool="local")
        else:
            desk.call("t_operator", f"eve_{way}")

    come_by()
    assert lost.expires_at == lease.expires_at
    assert "lease_expired" in desk.kinds(other)
    assert desk.kinds(lease.item)[-1] == "acquired"
    a.execute("commit")
    desk.clock.advance(1)
    come_by()
    assert "lease_expired" in desk.kinds(lease.item)


def test_a_deadline_skips_what_is_fenced(desk: Desk, session: Open) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    item = desk.item(deadline="2031-06-01 12:10Z")
    lease = desk.lease()
    a = fenced(session, lease)
    desk.clock.set("2031-06-01 12:10Z")
    assert desk.sweep().expired == 0
    a.execute("commit")
    assert desk.sweep().expired == 1
    assert desk.phase(item) == "expired"


def test_a_lease_that_is_superseded_fences_nothing(session: Open, lease: Row) -> None:
    """Who asks after a cancel that is under way waits for it, and is refused."""
    a, b = session("t_operator"), session("t_worker")
    a.execute("begin")
    a.call("eve_cancel", queue="q", item=lease.item)
    pending = b.start_call("eve_fence", queue="q", item=lease.item, token=lease.token)
    b.until_waiting()
    a.execute("commit")
    with pytest.raises(psycopg.Error) as refused:
        pending.result(PATIENCE)
    assert refused.value.sqlstate == "VE301"


def test_a_child_is_not_submitted_under_a_lease_that_ends(session: Open, lease: Row) -> None:
    a, b = session("t_worker"), session("t_worker")
    a.execute("begin")
    a.call("eve_complete", queue="q", item=lease.item, token=lease.token)
    pending = b.start(
        "select * from eve_submit(queue => 'q', under => row(%s, %s)::eve_lease)",
        [lease.item, lease.token],
    )
    b.until_waiting()
    a.execute("commit")
    (answer,) = pending.result(PATIENCE)
    assert (answer.decision, answer.reason) == ("REJECT", "lease_not_live")


def test_two_renewals_follow_each_other(desk: Desk, session: Open, lease: Row) -> None:
    a, b = session("t_worker"), session("t_worker")
    desk.clock.advance(60)
    a.execute("begin")
    first = a.call("eve_renew", queue="q", item=lease.item, token=lease.token)
    pending = b.start_call("eve_renew", queue="q", item=lease.item, token=lease.token)
    b.until_waiting()
    desk.clock.advance(60)
    a.execute("commit")
    (second,) = pending.result(PATIENCE)
    assert second.expires_at > first.expires_at
    assert desk.kinds(lease.item)[-2:] == ["renewed", "renewed"]
