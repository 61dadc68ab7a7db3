"""One queue of one test, and what happens at it: calls by role, phases, events, a census."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from support.database import Clock, Database, Row, call

Census = dict[str, tuple[int, str]]


@dataclass
class Desk:
    """A queue and its callers.

    desk.submit(work_id="a") · lease = desk.lease() · desk.complete(lease) · desk.phase(lease.item)
    Anything else: desk.call("t_human", "eve_unpark", item=lease.item). The queue is named for you.
    """

    db: Database = field(repr=False)
    queue: str
    spoiled: bool = field(default=False)  # a test that damages rows says so: its audit is not clean

    @property
    def clock(self) -> Clock:
        return self.db.clock

    @property
    def id(self) -> int:
        return int(self.db.value("select queue_id from eve.queue where name = %s", [self.queue]))

    def calls(self, role: str, function: str, /, **arguments: Any) -> list[Row]:
        return self.db.calls(role, function, queue=self.queue, **arguments)

    def call(self, role: str, function: str, /, **arguments: Any) -> Row:
        return self.db.call(role, function, queue=self.queue, **arguments)

    def refused(self, code: str) -> Any:
        return self.db.refused(code)

    # --- the happy path

    def submit(self, *, role: str = "t_producer", **arguments: Any) -> Row:
        return self.call(role, "eve_submit", **arguments)

    def item(self, **arguments: Any) -> int:
        """Submit, and the number of what was stored."""
        answer = self.submit(**arguments)
        assert answer.item is not None, (answer.decision, answer.reason)
        return int(answer.item)

    def acquire(self, *, role: str = "t_worker", worker: str = "w", **arguments: Any) -> Row:
        return self.call(role, "eve_acquire", worker=worker, **arguments)

    def lease(self, *, role: str = "t_worker", worker: str = "w", **arguments: Any) -> Row:
        """Acquire, and it must be granted."""
        answer = self.acquire(role=role, worker=worker, **arguments)
        assert answer.granted, (answer.refusal, answer.detail)
        return answer

    def leases(self, number: int, *, role: str = "t_worker", **arguments: Any) -> list[Row]:
        found = self.calls(role, "eve_acquire", worker="w", max_items=number, **arguments)
        assert [row.granted for row in found] == [True] * number
        return found

    def hold(self, function: str, lease: Row, *, role: str = "t_worker", **arguments: Any) -> Row:
        """A holder's call under its lease."""
        return self.call(role, function, item=lease.item, token=lease.token, **arguments)

    def complete(self, lease: Row, *, role: str = "t_worker", **arguments: Any) -> Row:
        return self.hold("eve_complete", lease, role=role, **arguments)

    def done(self, **arguments: Any) -> int:
        """Submit, lease and complete one item."""
        item = self.item(**arguments)
        assert self.complete(self.lease(item=item)).phase == "verified"
        return item

    def quarantined(self, **arguments: Any) -> int:
        """An item that its holder gave up."""
        item = self.item(**arguments)
        answer = self.hold("eve_fail", self.lease(item=item), disposition="dead", error="broken")
        assert answer.phase == "quarantined"
        return item

    def uncertain(self, **arguments: Any) -> int:
        item = self.item(**arguments)
        answer = self.hold("eve_fail", self.lease(item=item), disposition="uncertain")
        assert answer.phase == "uncertain"
        return item

    def define(self, name: str = "default", **policy: Any) -> Row:
        """A new revision of a class: preset and replay_class as arguments, the rest policy."""
        words = {k: policy.pop(k) for k in ("preset", "replay_class") if k in policy}
        return self.call(
            "t_operator", "eve_define_class", **{"class": name}, policy=policy or {"attempts": 3},
            **words,
        )  # fmt: skip

    def approve(self, pool: str, slots: int, **arguments: Any) -> Row:
        return self.call("t_human", "eve_approve_slots", pool=pool, slots=slots, **arguments)

    def sweep(self) -> Row:
        return self.call("t_operator", "eve_sweep")

    def lapse(self, lease: Row) -> None:
        """The clock comes to the very instant at which the lease ends."""
        self.clock.set(lease.expires_at)

    # --- what became of it, read as superuser

    def state(self, item: int) -> Row:
        return self.db.row(
            "select (w.queue_state).*, w.hash from eve.work_item as w"
            " where w.queue_id = %s and w.item = %s",
            [self.id, item],
        )

    def phase(self, item: int) -> str:
        return str(self.state(item).phase)

    def events(self, item: int) -> list[Row]:
        return self.db.rows(
            "select * from eve.ledger as l where l.queue_id = %s and l.item = %s order by version",
            [self.id, item],
        )

    def kinds(self, item: int) -> list[str]:
        return [event.kind for event in self.events(item)]

    def holds(self, item: int) -> list[str]:
        """The reasons an item waits for, in alphabetical order."""
        found = self.db.rows(
            "select reason from eve.hold where queue_id = %s and item = %s order by reason",
            [self.id, item],
        )
        return [row.reason for row in found]

    def live(self, pool: str | None = None) -> int:
        """Live leases, as the lease rows tell."""
        return int(
            self.db.value(
                "select count(*) from eve.held_slot as h"
                " where h.queue_id = %s and h.pool = coalesce(%s, h.pool)",
                [self.id, pool],
            )
        )

    def audit(self) -> Row:
        return self.call("t_auditor", "eve_audit")

    def census(self) -> Census:
        return census(self.db)


def census(db: Database) -> Census:
    """How many rows each table of eve has, and a digest of them all."""
    tables = db.rows(
        "select relname from pg_class where relnamespace = 'eve'::regnamespace"
        " and relkind in ('r', 'p') order by 1"
    )
    parts = (
        f"select '{table.relname}' as name, count(*) as rows,"
        " coalesce(sum(hashtextextended(t::text, 0)), 0)::text as digest"
        f" from eve.{table.relname} as t"
        for table in tables
    )
    found = db.rows(" union all ".join(parts))
    return {row[0]: (row[1], row[2]) for row in found}


def changed(before: Census, after: Census) -> list[str]:
    """The tables whose rows differ."""
    return [name for name in after if after[name] != before[name]]


def undone(db: Database, role: str, act: Callable[..., Row], /) -> Row:
    """What an act answers in a transaction that is rolled back; `act` gets a caller."""
    connection = db.connect(role, autocommit=False)
    try:
        return act(lambda function, /, **arguments: call(connection, function, **arguments))
    finally:
        connection.rollback()
        connection.close()


def at(text: str) -> datetime:
    """An instant, for comparisons with answers: at("2031-06-01 12:00")."""
    return datetime.fromisoformat(f"{text}+00:00")
