"""A server killed in the middle of a write leaves it whole or absent, and the item is found again.

Every row that the call writes is a point at which the server is killed: a trigger of the test stops
there, waiting for a lock, until the server is gone. One more point lies after the call and before
its commit, and one after the commit.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import psycopg
import pytest

from support.cluster import running
from support.database import Database, Home, call
from support.desk import Desk
from support.fleet import Fleet
from support.session import until

KILLED = "-c fsync=off -c full_page_writes=off"  # processes die here, the machine does not
ROUNDS = max(1, round(float(os.environ.get("EVE_SCALE", "1"))))
T = "2031-06-01 12:00Z"
STOPS = """
create function public.stop_here() returns trigger language plpgsql as $$
declare
    seen integer := coalesce(nullif(current_setting('crash.seen', true), ''), '0')::integer + 1;
begin
    perform set_config('crash.seen', seen::text, false);
    if seen = nullif(current_setting('crash.at', true), '')::integer then
        perform pg_advisory_xact_lock(4711);
    end if;
    return null;
end
$$;
do $$
declare
    name text;
begin
    for name in select c.oid::regclass::text from pg_class as c
        where c.relnamespace = 'eve'::regnamespace and c.relkind = 'r'
    loop
        execute format('create trigger zz_stop after insert or update or delete on %s'
            ' for each row execute function public.stop_here()', name);
        execute format('alter table %s enable always trigger zz_stop', name);
    end loop;
end
$$;
"""
GO_ON = "drop function public.stop_here() cascade"


@dataclass
class Case:
    """A situation, the call that is killed, whose phase tells what came of it, and how it ends."""

    set_up: Callable[[Desk], int]
    role: str
    verb: str
    arguments: Callable[[Desk, int], dict[str, object]]
    before: str
    after: str
    again: Callable[[Desk, int], None]


def leased(desk: Desk, attempts: int) -> int:
    desk.clock.set(T)
    desk.define(replay_class="safe", attempts=attempts, backoff_base="0 s")
    item = desk.item()
    desk.lease(item=item)
    return item


def lapsed(desk: Desk) -> int:
    item = leased(desk, 1)
    desk.clock.set("2031-06-01 13:00Z")
    return item


def tried_once(desk: Desk) -> int:
    item = leased(desk, 3)
    token = desk.state(item).token
    desk.call("t_worker", "eve_return", item=item, token=token, reason="later")
    desk.lease(item=item)
    desk.call("t_worker", "eve_fail", item=item, token=desk.state(item).token, error="x")
    desk.sweep()
    desk.define(replay_class="safe", attempts=1)
    return item


def waiting(desk: Desk) -> int:
    parent = desk.item(work_id="parent")
    child = desk.item(after=["parent"])
    desk.lease(item=parent)
    return child


def untimely(desk: Desk) -> int:
    desk.clock.set(T)
    item = desk.item(not_before="2031-06-01 12:30Z")
    desk.clock.set("2031-06-01 13:00Z")
    return item


def unmeasured(desk: Desk) -> int:
    desk.define(replay_class="safe", evidence="required")
    return desk.item()


def budgeted(desk: Desk) -> int:
    desk.define(replay_class="safe", item_limit=2)
    return desk.item()


def token(desk: Desk, item: int) -> dict[str, object]:
    return {"item": item, "token": desk.state(item).token}


def parent(desk: Desk, _child: int) -> dict[str, object]:
    return token(desk, desk.call("t_auditor", "eve_item", work_id="parent").item)


def nothing(_desk: Desk, _item: int) -> dict[str, object]:
    return {}


def recover(desk: Desk, _item: int) -> None:
    desk.clock.set("2031-06-01 18:00Z")
    desk.call("t_operator", "eve_recover")


def measure(desk: Desk, _item: int) -> None:
    desk.calls("t_operator", "eve_measure")


def reconcile(finding: str) -> Case:
    def ask(_desk: Desk, item: int) -> dict[str, object]:
        return {"item": item, "finding": finding, "evidence": {"kind": "lookup"}}

    return Case(
        Desk.uncertain, "t_verifier", "eve_reconcile", ask, "uncertain",
        "verified" if finding == "observed" else "ready",
        lambda desk, item: desk.call("t_verifier", "eve_reconcile", **ask(desk, item)) and None,
    )  # fmt: skip


CASES = {
    "parked by the last failure": Case(
        lambda desk: leased(desk, 1), "t_worker", "eve_fail",
        lambda desk, item: {**token(desk, item), "error": "broken"}, "leased", "quarantined",
        recover,
    ),
    "parked by a recovery": Case(
        lapsed, "t_operator", "eve_recover", nothing, "leased", "quarantined", recover
    ),
    "parked by the pick": Case(
        tried_once, "t_worker", "eve_acquire", lambda *_: {"worker": "w"}, "ready", "quarantined",
        lambda desk, _item: desk.acquire() and None,
    ),
    "released by its parent": Case(
        waiting, "t_worker", "eve_complete", parent, "held", "ready",
        lambda desk, child: desk.call("t_worker", "eve_complete", **parent(desk, child)) and None,
    ),
    "released by time": Case(
        untimely, "t_operator", "eve_sweep", nothing, "held", "ready",
        lambda desk, _item: desk.sweep() and None,
    ),
    "released by an observation": Case(
        unmeasured, "t_operator", "eve_measure", nothing, "held", "ready",
        measure,
    ),
    "reconciled as absent": reconcile("absent"),
    "reconciled as observed": reconcile("observed"),
    "taken": Case(
        lambda desk: desk.item(), "t_worker", "eve_acquire", lambda *_: {"worker": "w"}, "ready",
        "leased", lambda desk, _item: desk.lease() and None,
    ),
    "submitted under a strict budget": Case(
        budgeted, "t_producer", "eve_submit", lambda *_: {"work_id": "second"}, "ready", "ready",
        lambda desk, _item: desk.submit(work_id="second") and None,
    ),
}  # fmt: skip
PARKS = [name for name in CASES if name.startswith("parked")]
OTHERS = [name for name in CASES if name not in PARKS]


@pytest.fixture(scope="module")
def home(fleet: Fleet) -> Iterator[Home]:
    """A cluster to kill; the fleet's own has installed the extension."""
    with running(fleet.home().cluster.server, KILLED) as cluster:
        yield Home(cluster)


NUMBER = itertools.count(1)


def killed_everywhere(home: Home, case: Case) -> int:
    """Kill at each point, in a database of its own; gives how many there were."""
    cluster = home.cluster
    for points in itertools.count(1):
        name = f"crash{next(NUMBER)}"
        cluster.create(name, Home.template)
        with closing(Database(cluster, name)) as db:
            desk = Desk(db, db.make_queue())
            item = case.set_up(desk)
            stopped = kill(db, desk, case, item, points)
        cluster.start()
        with closing(Database(cluster, name)) as db:
            db.rows(GO_ON)
            whole_or_absent(Desk(db, desk.queue), case, item, committed=stopped == "committed")
        cluster.drop(name)
        if stopped == "committed":
            return points
    raise AssertionError("unreachable")


def kill(db: Database, desk: Desk, case: Case, item: int, point: int) -> str:
    """Where the server was when it was killed: at a row, before the commit, or after it."""
    arguments = {"queue": desk.queue, **case.arguments(desk, item)}
    db.rows(STOPS)
    guard = db.connect("postgres")
    guard.execute("select pg_advisory_lock(4711)")
    victim = db.connect(case.role)
    victim.execute(f"set crash.at = {point}")
    victim.execute("begin")
    watch = db.connect("postgres")
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending = thread.submit(call, victim, case.verb, **arguments)

        def there() -> bool:
            row = watch.execute(
                "select cardinality(pg_blocking_pids(%s)) > 0", [victim.info.backend_pid]
            ).fetchone()
            return pending.done() or bool(row and row[0])

        until(there, "the call stops or ends")
        where = "at a row"
        if pending.done():
            pending.result()
            if int(victim.execute("show crash.seen").fetchone()[0]) < point - 1:  # type: ignore[index]
                victim.execute("commit")
                where = "committed"
            else:
                where = "before the commit"
        db.cluster.stop("immediate")
        if where == "at a row":
            with pytest.raises(psycopg.OperationalError):
                pending.result(20)
    return where


def whole_or_absent(desk: Desk, case: Case, item: int, *, committed: bool) -> None:
    audit = desk.audit()
    assert audit.clean, audit.faults
    expected = case.after if committed else case.before
    assert desk.phase(item) == expected
    last = desk.events(item)[-1]
    assert last.phase == expected
    if case.verb == "eve_submit":
        found = desk.db.value(
            "select count(*) from eve.intent where queue_id = %s and work_id = 'second'", [desk.id]
        )
        assert found == int(committed)
    if not committed:
        case.again(desk, item)  # and the item is found again
    assert desk.phase(item) == case.after
    if case.after == "quarantined":
        assert desk.events(item)[-1].data["quarantine"]["reason"]
        assert not desk.acquire(item=item).granted
    assert desk.audit().clean


@pytest.mark.parametrize("name", PARKS)
def test_a2_123_a_park_killed_at_every_row_is_whole_or_found_again(
    home: Home, name: str, record_property: Callable[[str, object], None]
) -> None:
    for _ in range(ROUNDS):
        points = killed_everywhere(home, CASES[name])
        assert points > 3
        record_property("points", points)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_killed_at_every_row_is_whole_or_absent(
    home: Home, name: str, record_property: Callable[[str, object], None]
) -> None:
    for _ in range(ROUNDS):
        points = killed_everywhere(home, CASES[name])
        assert points > 3
        record_property("points", points)
