"""The chain of hashes: recomputed outside the database, whatever the settings; broken by change."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql
from psycopg.types.string import TextLoader

from model.ground import SCALE, dumps, prepare, scaled
from model.histories import Walk
from model.test_fold import append, begin_queue
from support.database import Connection, Database, Row, call

SETTINGS: Sequence[dict[str, str]] = (
    {},
    {"timezone": "Pacific/Chatham", "datestyle": "German", "intervalstyle": "iso_8601"},
    {"timezone": "America/St_Johns", "datestyle": "SQL, DMY", "intervalstyle": "sql_standard"},
    {"bytea_output": "escape", "extra_float_digits": "-15", "client_encoding": "latin1"},
    {"client_encoding": "latin9", "lc_numeric": "C", "standard_conforming_strings": "on",
     "datestyle": "Postgres, MDY", "intervalstyle": "postgres_verbose"},
)  # fmt: skip
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL's


def number(size: str, value: int | None) -> bytes:
    return part(None if value is None else struct.pack(f">{size}", value))


def part(value: bytes | str | None) -> bytes:
    """A value preceded by its length; null is ffffffff."""
    if value is None:
        return b"\xff\xff\xff\xff"
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(raw)) + raw


def instant(value: datetime) -> bytes:
    passed = value - EPOCH
    return struct.pack(">q", (passed.days * 86400 + passed.seconds) * 10**6 + passed.microseconds)


def hashed(previous: bytes, row: Row) -> bytes:
    """sha256 over the previous hash and the row's columns in their fixed binary form."""
    return hashlib.sha256(
        previous
        + struct.pack(">qqiQ", row.queue_id, row.item, row.version, int(row.tx))
        + part(row.kind)
        + part(row.phase)
        + instant(row.at)
        + part(row.actor)
        + part(row.principal)
        + part(row.worker)
        + number("q", row.epoch)
        + number("i", row.revision)
        + number("q", row.token)
        + part(row.pool)
        + number("i", row.slot)
        + part(row.due_at and instant(row.due_at))
        + number("h", row.rank)
        + number("i", row.attempts)
        + part(row.reason)
        + part(row.data)
    ).digest()


def chain(kept: Connection, queue_id: int) -> int:
    """Every stored hash is the recomputed one; how many there are."""
    rows = kept.execute(
        "select queue_id, item, version, tx::text as tx, kind, phase, at, actor, principal, worker,"
        " epoch, revision, token, pool, slot, due_at, rank, attempts, reason, data::text as data,"
        " hash from eve.ledger where queue_id = %s order by item, version",
        [queue_id],
        binary=True,
    ).fetchall()
    previous = b""
    for row in rows:
        if row.version == 1:
            previous = b""
        previous = hashed(previous, row)
        assert bytes(row.hash) == previous, row
    return len(rows)


def apply(kept: Connection, settings: dict[str, str]) -> None:
    for name in ("timestamptz", "interval", "jsonb"):
        kept.adapters.register_loader(name, TextLoader)  # psycopg reads ISO and UTF-8 alone
    kept.execute("reset all")
    for name, value in settings.items():
        kept.execute(sql.SQL("set {} to {}").format(sql.Identifier(name), sql.Literal(value)))


def test_stored_hashes_are_those_recomputed_outside(db: Database, tally: Counter[str]) -> None:
    prepare(db)
    kept = db.kept()

    @scaled(60)
    @given(st.randoms(use_true_random=True), st.integers(1, 8), st.integers(1, 60))
    def law(rnd: Random, items: int, length: int) -> None:
        walk = Walk(rnd, items).run(length)
        queue_id = begin_queue(kept, walk)
        append(kept, queue_id, walk.ops)
        tally["histories"] += len(walk.states)
        tally["events"] += chain(kept, queue_id)

    law()


def create(db: Database, queue: str) -> str:
    """A queue of the superuser, who produces and works in it."""
    db.call("postgres", "eve_create_queue", queue=queue, replay_class="safe", durability="any")
    return queue


def work(kept: Connection, queue: str) -> None:
    """The same calls whatever the settings: with instants, intervals, floats and accents."""
    when = datetime(2031, 6, 1, 12, 34, 56, 789012, tzinfo=UTC)
    payload = dumps({"é": [1.0, 1e-7, 123456789.123456789, None], "ß": "grün"})
    ask: dict[str, Any] = {
        "queue": queue, "payload": payload, "work_id": "größe", "not_before": when,
        "deadline": when.replace(year=2032), "minimum_completion_margin": "1 day 02:03:04.5",
        "value_until": when.replace(year=2033), "trace": "naïve", "idempotency_key": "é1",
    }  # fmt: skip
    first = call(kept, "eve_submit", **ask)
    again = call(kept, "eve_submit", **ask)
    assert again[0].replayed
    assert again[0]._replace(replayed=False) == first[0]
    call(kept, "eve_submit", queue=queue, payload=payload, work_id="zoé")
    (leased,) = call(kept, "eve_acquire", queue=queue, worker="wörker", ttl="00:05:00.25")
    lease = {"queue": queue, "item": leased.item, "token": leased.token}
    call(
        kept,
        "eve_renew",
        **lease,
        progress=dumps({"of": 0.1}),
        checkpoint=dumps({"at": "é", "n": 1e22}),
    )
    call(kept, "eve_return", **lease, reason="später", until=when)


@pytest.mark.parametrize("writing", range(len(SETTINGS)))
def test_hashes_do_not_depend_on_the_session(
    db: Database, writing: int, tally: Counter[str]
) -> None:
    """Written under these settings they are right under all others; so are keyed repetitions."""
    kept = db.connect()
    create(db, "q")
    apply(kept, SETTINGS[writing])
    work(kept, "q")
    queue_id = db.value("select queue_id from eve.queue where name = 'q'")
    reader = db.connect()
    for settings in SETTINGS:
        apply(reader, settings)
        (audit,) = call(reader, "eve_audit", queue="q")
        assert audit.clean, audit.faults
        if settings.get("client_encoding") is None:
            tally["events"] += chain(reader, queue_id)


def test_the_same_calls_leave_the_same_events_under_any_settings(db: Database) -> None:
    """But for the numbers of queue, item and transaction; the instant of a hold is the same one."""
    db.clock.set("2030-01-01 00:00Z")
    said = []
    for place, settings in enumerate(SETTINGS):
        queue = create(db, f"q{place}")
        kept = db.connect()
        apply(kept, settings)
        work(kept, queue)
        said.append(
            db.rows(
                "select work_id, version, kind, l.phase, l.at, l.worker, l.token, l.due_at, reason,"
                "    (l.data #- '{holds,0,due_at}')::text, payload_digest,"
                "    (l.data #>> '{holds,0,due_at}')::timestamptz, minimum_completion_margin"
                " from eve.ledger l join eve.queue using (queue_id)"
                " join eve.intent using (queue_id, item) where name = %s order by 1, 2",
                [queue],
            )
        )
    for other in said[1:]:
        assert other == said[0]


# Tampering. A superuser can switch the guards off; the audit still tells.

CHANGED = {
    "tx": "(tx::text::bigint + 1)::text::xid8",
    "kind": "case kind when 'renewed' then 'effect_started' when 'halted' then 'resumed'"
            " when 'absorbed' then 'renewed' when 'sealed' then 'archived'"
            " else case item when 0 then 'sealed' else 'absorbed' end end",
    "phase": "case phase when 'ready' then 'held' else 'ready' end",
    "at": "at + interval '1 us'",
    "due_at": "coalesce(due_at, at) + interval '1 us'",
    "rank": "(coalesce(rank, 0) + 1) % 4",
    "epoch": "epoch + 1",
    "data": "case when data is null then '{}' else data || '{\"more\": 1}' end",
    "hash": "set_byte(hash, {byte}, get_byte(hash, {byte}) # 1)",
    "version": "version + 1000",
    "item": "item + 1000",
    "queue_id": "queue_id + 1000",
    **{n: f"coalesce({n}, 0) + 1" for n in ("revision", "token", "slot", "attempts")},
    **{n: f"coalesce({n}, '') || 'x'" for n in ("actor", "principal", "worker", "pool", "reason")},
}  # fmt: skip
COLUMNS = tuple(CHANGED)
GUARDS = ("ledger_fold", "ledger_guard_row", "ledger_guard_truncate")


class Tampering:
    """Changes to the ledger with its triggers off, one at a time, each taken back."""

    def __init__(self, db: Database, queue: str, tally: Counter[str]) -> None:
        self.kept = db.kept()
        self.queue = queue
        self.queue_id = db.value("select queue_id from eve.queue where name = %s", [queue])
        self.tally = tally

    def rows(self, query: str) -> list[Row]:
        return self.kept.execute(query.encode(), [self.queue_id]).fetchall()

    def reported(self, change: str, items: set[int] | None) -> None:
        with self.kept.transaction(force_rollback=True):
            self.kept.execute("alter table eve.ledger disable trigger user")
            done = self.kept.execute(change.encode())
            assert done.rowcount != 0, change
            for guard in GUARDS:
                self.kept.execute(f"alter table eve.ledger enable always trigger {guard}".encode())
            (audit,) = call(self.kept, "eve_audit", queue=self.queue)
            assert not audit.clean, change
            if items is not None:
                named = {f["item"] for f in audit.faults}
                assert items & named, (change, audit.faults)
        self.tally["tampered"] += 1


@pytest.fixture
def tampering(db: Database, tally: Counter[str]) -> Tampering:
    """A queue with a history of many kinds."""
    prepare(db)
    walk = Walk(Random(7), 8).run(250)
    queue_id = begin_queue(db.kept(), walk)
    append(db.kept(), queue_id, walk.ops)
    found = Tampering(db, f"q{queue_id}", tally)
    assert call(db.kept(), "eve_audit", queue=found.queue)[0].clean
    return found


def test_a_changed_column_of_any_event_is_reported(tampering: Tampering) -> None:
    rnd = Random(11)
    rows = tampering.rows(
        "select item, version from eve.ledger where queue_id = %s order by item, version"
    )
    for row in rnd.sample(rows, min(len(rows), round(40 * SCALE))):
        here = f"queue_id = {tampering.queue_id} and item = {row.item} and version = {row.version}"
        for column in COLUMNS:
            if column == "item" and row.item == 0:
                continue  # facts of the queue lie under item 0: a constraint
            value = CHANGED[column].replace("{byte}", str(rnd.randrange(32)))
            tampering.reported(
                f"update eve.ledger set {column} = {value} where {here}",
                {row.item, row.item + 1000},
            )


def test_a_changed_byte_of_stored_text_is_reported(tampering: Tampering) -> None:
    """One character of a reason, a worker or a document."""
    for row in tampering.rows(
        "select item, version, reason, data::text as data from eve.ledger"
        " where queue_id = %s and (reason is not null or data is not null) order by item, version"
    ):
        here = f"queue_id = {tampering.queue_id} and item = {row.item} and version = {row.version}"
        if row.reason:
            changed = "overlay(reason placing 'Z' from length(reason))"
            tampering.reported(f"update eve.ledger set reason = {changed} where {here}", {row.item})
        if row.data:
            tampering.reported(
                "update eve.ledger set data = case jsonb_typeof(data) when 'object'"
                f" then data || '{{\"\": null}}' else 'null' end where {here}",
                {row.item},
            )


def test_an_event_taken_out_put_in_or_moved_is_reported(tampering: Tampering) -> None:
    rows = tampering.rows(
        "select item, version, max(version) over (partition by item) as newest"
        " from eve.ledger where queue_id = %s order by item, version"
    )
    q = tampering.queue_id
    for row in rows:
        here = f"queue_id = {q} and item = {row.item}"
        tampering.reported(f"delete from eve.ledger where {here} and version = {row.version}",
                           {row.item})  # fmt: skip
        if row.version < row.newest:
            tampering.reported(  # cut off
                f"delete from eve.ledger where {here} and version > {row.version}", {row.item}
            )
            tampering.reported(  # exchanged with the next
                f"update eve.ledger set version = version + 100000 where {here}"
                f" and version in ({row.version}, {row.version + 1});"
                f"update eve.ledger set version = case version - 100000 when {row.version}"
                f" then {row.version + 1} else {row.version} end where {here} and version > 50000",
                {row.item},
            )  # fmt: skip
        if row.newest == 1:
            continue
        tampering.reported(  # taken out, the rest closed up
            f"delete from eve.ledger where {here} and version = {row.version};"
            f"update eve.ledger set version = version + 99999 where {here}"
            f" and version > {row.version};"
            f"update eve.ledger set version = version - 100000 where {here} and version > 50000",
            {row.item},
        )
        columns = ("kind, phase, at, actor, principal, worker, epoch, revision, token, pool, slot,"
                   " due_at, rank, attempts, reason, data")  # fmt: skip
        tampering.reported(  # put in at the end, with a hash that follows
            f"insert into eve.ledger (queue_id, item, version, tx, {columns}, hash)"
            f" select queue_id, item, version + 1, tx, {columns}, eve._hash(hash, queue_id, item,"
            f" version + 1, tx, {columns}) from eve.ledger where {here}"
            f" and version = {row.newest}",
            {row.item},
        )
    tampering.reported(f"delete from eve.ledger where queue_id = {q} and item = 3", {3})
    tampering.reported(
        f"delete from eve.ledger where queue_id = {q} and item = 3;"
        f"delete from eve.work_item where queue_id = {q} and item = 3;"
        f"delete from eve.ready where queue_id = {q} and item = 3;"
        f"delete from eve.hold where queue_id = {q} and item = 3;"
        f"delete from eve.held_slot where queue_id = {q} and item = 3",
        {3},
    )
