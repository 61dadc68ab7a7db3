"""No item is lost below a mark, whoever commits late, rolls back, prepares or reads old snapshots.

On a server of its own, with prepared transactions and the real clock: a mark is made of the order
in which transactions began, read the clock and ended.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator

import pytest

from support.cluster import FAST, running
from support.database import Connection, Database, Home, Row, call
from support.desk import Desk
from support.fleet import Fleet
from support.race import LEVELS, RETRY, begin, rush, scaled

LOST = """
select r.* from eve.ready as r
where r.queue_id = %(queue)s and not r.late and r.ready_since < (
    select max(m.since) from eve.mark as m
    where m.queue_id = r.queue_id and m.lane in (r.lane, -r.class_id) and m.rank = r.rank)
union all
select f.queue_id, 0, 0, false, now(), f.seq, 0 from eve.free_slot as f
where f.queue_id = %(queue)s and f.seq < (
    select max(m.seq) from eve.slot_mark as m
    where m.queue_id = f.queue_id and m.pool = f.pool and m.exact)
union all
select h.queue_id, 0, 1, false, h.due_at, h.item, 0 from eve.hold as h
where h.queue_id = %(queue)s and h.due_at < (
    select max(m.since) from eve.mark as m
    where m.queue_id = h.queue_id and m.lane = 0 and m.rank = 1)
union all
select h.queue_id, 0, case when h.looked then 4 else 3 end, false, h.look_at, h.item, 0
from eve.hold as h
where h.queue_id = %(queue)s and h.look_at < (
    select max(m.since) from eve.mark as m
    where m.queue_id = h.queue_id and m.lane = 0 and m.rank = case when h.looked then 4 else 3 end)
union all
select d.queue_id, 0, 2, false, d.at, d.item, 0 from eve.deadline as d
where d.queue_id = %(queue)s and d.at < (
    select max(m.since) from eve.mark as m
    where m.queue_id = d.queue_id and m.lane = 0 and m.rank = 2)
"""
MARKS = "select coalesce(max(since), 'epoch') from eve.mark where queue_id = %s and lane = 1"


@pytest.fixture(scope="module")
def home(fleet: Fleet) -> Iterator[Home]:
    options = f"{FAST} -c max_prepared_transactions=100"
    with running(fleet.servers[0], options) as cluster:
        yield Home(cluster)


@pytest.fixture(scope="module")
def db(home: Home) -> Iterator[Database]:
    with home.database(shipped=True) as database:
        yield database


@pytest.fixture
def desk(db: Database) -> Iterator[Desk]:
    desk = Desk(db, db.make_queue())
    yield desk
    db.rows("update eve.queue set name = %s where name = %s", [f"q{desk.id}", desk.queue])
    db.close()


def mark(connection: Connection, queue: int) -> None:
    """What housekeeping does for the marks, more often than once a second."""
    for rank in range(4):
        connection.execute("select eve._advance(%s, 1::smallint, %s::smallint)", [queue, rank])
        connection.execute("select eve._advance_class(%s, 1, %s::smallint)", [queue, rank])
    connection.execute("select eve._advance_due(%s)", [queue])
    connection.execute(
        "select eve._advance_slots(queue_id, pool) from eve.pool where queue_id = %s", [queue]
    )
    connection.execute("select eve._probe(%s)", [queue])


@pytest.mark.parametrize("snapshot", LEVELS)
def test_a_held_snapshot_does_not_stop_the_marks(desk: Desk, snapshot: str) -> None:
    reader, keeper = desk.db.connect("postgres"), desk.db.connect("postgres")
    begin(reader, snapshot)
    reader.execute("select count(*) from eve.ready")
    before = desk.db.value(MARKS, [desk.id])
    for _ in range(3):
        desk.done()
        mark(keeper, desk.id)
    assert desk.db.value(MARKS, [desk.id]) > before
    reader.execute("rollback")


def test_an_open_writer_makes_the_marks_stand_still(desk: Desk) -> None:
    """Whatever it wrote: what it will still make ready is not known. Later all go on."""
    writer, keeper = desk.db.connect("t_producer"), desk.db.connect("postgres")
    for _ in range(2):
        mark(keeper, desk.id)
    begin(writer, "read committed")
    writer.execute("select pg_current_xact_id()")
    for _ in range(2):
        mark(keeper, desk.id)
    before = desk.db.value(MARKS, [desk.id])
    for _ in range(3):
        desk.done()
        mark(keeper, desk.id)
    assert desk.db.value(MARKS, [desk.id]) == before
    late = call(writer, "eve_submit", queue="q")[0].item
    writer.execute("commit")
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    for _ in range(2):
        mark(keeper, desk.id)
    assert desk.lease().item == late
    for _ in range(2):
        mark(keeper, desk.id)
    assert desk.db.value(MARKS, [desk.id]) > before


def test_a_prepared_transaction_makes_the_marks_stand_still(desk: Desk) -> None:
    writer, keeper = desk.db.connect("t_producer"), desk.db.connect("postgres")
    begin(writer, "read committed")
    item = call(writer, "eve_submit", queue="q")[0].item
    writer.execute("prepare transaction 'one'")
    for _ in range(4):
        mark(keeper, desk.id)
    desk.done()
    for _ in range(4):
        mark(keeper, desk.id)
    writer.execute("commit prepared 'one'")
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    assert desk.lease().item == item


def test_a_take_that_rolls_back_is_below_no_mark(desk: Desk) -> None:
    """The mark passes only what is gone for everybody."""
    item = desk.item()
    keeper, taker = desk.db.connect("postgres"), desk.db.connect("t_worker")
    begin(taker, "read committed")
    assert call(taker, "eve_acquire", queue="q", worker="w")[0].item == item
    for _ in range(4):
        mark(keeper, desk.id)
    taker.execute("rollback")
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    assert desk.lease().item == item


def test_no_item_is_lost_below_a_mark(desk: Desk) -> None:
    desk.approve("cloud", 12)
    desk.define(attempts=1000, replay_class="safe")
    numbers = itertools.count(1)
    over = threading.Event()
    running_now = threading.Semaphore(0)
    submitters = 4
    pause = threading.Event()
    submitted: list[int] = []

    def submit(connection: Connection, dice: random.Random) -> list[int]:
        """Some items, in one of the ways they become ready: at once, later, by a parent."""
        made: list[int] = []
        for _ in range(dice.randint(1, 3)):
            arguments: dict[str, object] = {"priority_class": dice.randrange(4)}
            if dice.random() < 0.2:
                soon = connection.execute("select clock_timestamp() + interval '30 ms'").fetchone()
                arguments["not_before"] = soon and soon[0]
            number = next(numbers)
            if dice.random() < 0.2:
                arguments["after"] = [f"w{dice.randint(0, number - 1)}"]
            if dice.random() < 0.3:
                arguments["work_id"] = f"w{number}"
            aside = dice.random() < 0.3
            if aside:
                connection.execute("savepoint aside")
            row = call(connection, "eve_submit", queue="q", **arguments)[0]
            if aside and dice.random() < 0.5:
                connection.execute("rollback to savepoint aside")
            else:
                made.append(row.item)
        return made

    def submitter(dice: random.Random) -> None:
        connection = desk.db.connect("t_producer")
        try:
            for _ in range(scaled(40)):
                try:
                    begin(connection, dice.choice(LEVELS))
                    if dice.random() < 0.3:
                        connection.execute("select count(*) from pg_class")
                        pause.wait(dice.random() * 0.02)
                    made = submit(connection, dice)
                    if dice.random() < 0.4:
                        pause.wait(dice.random() * 0.08)
                    ending = dice.random()
                    if ending < 0.2:
                        name = f"g{next(numbers)}"
                        connection.execute(f"prepare transaction '{name}'")
                        pause.wait(dice.random() * 0.08)
                        kept = dice.random() < 0.7
                        connection.execute(f"{'commit' if kept else 'rollback'} prepared '{name}'")
                    else:
                        kept = ending < 0.9
                        connection.execute("commit" if kept else "rollback")
                    if kept:
                        submitted.extend(made)
                except RETRY:
                    connection.execute("rollback")
        finally:
            running_now.release()

    def taker(dice: random.Random) -> None:
        connection = desk.db.connect("t_worker")
        while not over.is_set():
            try:
                begin(connection, dice.choice(LEVELS))
                rows = call(
                    connection, "eve_acquire", queue="q", worker="w", max_items=dice.randint(1, 3)
                )
                for row in rows:
                    if row.granted and dice.random() < 0.9:
                        verb = dice.choice(("eve_complete", "eve_complete", "eve_return"))
                        call(connection, verb, queue="q", item=row.item, token=row.token)
                if dice.random() < 0.2:
                    pause.wait(dice.random() * 0.03)
                connection.execute("commit" if dice.random() < 0.85 else "rollback")
            except RETRY:
                connection.execute("rollback")

    def keeper(dice: random.Random) -> None:
        connection = desk.db.connect("postgres")
        while not over.is_set():
            try:
                begin(connection, dice.choice(LEVELS[:2]))
                if dice.random() < 0.3:
                    connection.execute("select count(*) from eve.mark")
                    pause.wait(dice.random() * 0.03)
                mark(connection, desk.id)
                if dice.random() < 0.3:
                    pause.wait(dice.random() * 0.03)
                connection.execute("commit" if dice.random() < 0.9 else "rollback")
            except RETRY:
                connection.execute("rollback")
            pause.wait(0.002)

    def sweeper(dice: random.Random) -> None:
        connection = desk.db.connect("t_operator")
        while not over.is_set():
            try:
                call(connection, "eve_sweep", queue="q")
            except RETRY:
                continue
            pause.wait(dice.random() * 0.2)

    def watcher(_: random.Random) -> None:
        connection = desk.db.connect("postgres")
        for _runner in range(submitters):
            while not running_now.acquire(timeout=0.005):
                assert connection.execute(LOST, {"queue": desk.id}).fetchall() == []
        over.set()

    rush([watcher, sweeper, *[submitter] * submitters, *[taker] * 2, *[keeper] * 2], over)
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    marks = desk.db.value("select count(*) from eve.mark where queue_id = %s", [desk.id])
    assert marks > 0
    drained(desk, submitted)


def drained(desk: Desk, items: list[int]) -> None:
    """All that was committed comes to its end, or waits for a name that nobody submitted."""
    keeper = desk.db.connect("postgres")

    def waits() -> list[Row]:
        return desk.db.rows(
            "select w.item from eve.work_item as w where w.queue_id = %s and item > 0"
            " and (w.queue_state).phase in ('ready', 'held', 'leased')",
            [desk.id],
        )

    for lease in desk.db.rows("select * from eve.held_slot where queue_id = %s", [desk.id]):
        desk.complete(lease)
    for name in desk.db.rows(
        "select distinct on_work_id as name from eve.dependency"
        " where queue_id = %s and open and on_item is null",
        [desk.id],
    ):
        desk.item(work_id=name.name)
    for _ in range(5 + len(items)):
        desk.sweep()
        mark(keeper, desk.id)
        while (lease := desk.acquire(max_items=1)).granted:
            desk.complete(lease)
        if not waits():
            break
    assert waits() == []
    stored = desk.db.rows(
        "select item, (queue_state).phase from eve.work_item where queue_id = %s and item > 0",
        [desk.id],
    )
    assert {row.phase for row in stored} == {"verified"}
    assert set(items) <= {row.item for row in stored}
    audit = desk.audit()
    assert audit.clean, audit.faults


def test_a_clock_that_steps_back_loses_nothing(home: Home) -> None:
    """The clock of a queue is never before its newest tick or probe."""
    with home.database() as db:
        desk = Desk(db, db.make_queue())
        keeper = db.connect("postgres")
        now = db.value("select clock_timestamp() - interval '1 hour'")
        desk.clock.set(now)
        for _ in range(3):
            desk.done()
            mark(keeper, desk.id)
        desk.clock.advance(-600)
        item = desk.item()
        assert db.rows(LOST, {"queue": desk.id}) == []
        assert desk.lease().item == item


def test_nobody_waits_for_the_mark_of_an_open_transaction(desk: Desk) -> None:
    """Two who would move a mark to the same place: neither waits, and each ending is right."""
    desk.item()
    one, two = desk.db.connect("postgres"), desk.db.connect("postgres")
    one.execute("select eve._probe(%s)", [desk.id])
    begin(one, "read committed")
    mark(one, desk.id)
    two.execute("set lock_timeout = '5 s'")
    mark(two, desk.id)
    desk.sweep()
    one.execute("rollback")
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    assert desk.lease()


def test_a_probe_repeats_no_later_one(desk: Desk) -> None:
    """Its id is older than that of a submission which is older than the other probe."""
    one, two = desk.db.connect("postgres"), desk.db.connect("postgres")
    producer = desk.db.connect("t_producer")
    begin(one, "read committed")
    one.execute("select pg_current_xact_id()")
    begin(producer, "read committed")
    item = call(producer, "eve_submit", queue="q")[0].item
    two.execute("select eve._probe(%s)", [desk.id])
    one.execute("select eve._probe(%s)", [desk.id])
    one.execute("commit")
    mark(two, desk.id)
    producer.execute("commit")
    assert desk.db.rows(LOST, {"queue": desk.id}) == []
    assert desk.lease().item == item
