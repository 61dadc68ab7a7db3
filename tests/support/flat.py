"""What a call reads: buffers, not time. A backlog loaded fast, and calls measured one by one.

The backlog comes in as a restore would bring it: intents, then ledger rows with their version and
hash, the states by `eve.step`, the ready rows; set-based, about 80 µs an item. `eve_audit` proves
afterwards that this is what `eve_submit` would have made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from support.database import Connection
from support.desk import Desk

LOAD = """
with made as materialized (
    select nextval('eve.item_seq') as item, (i %% %(ranks)s)::smallint as rank,
        clock_timestamp() - %(age)s * interval '1 s' as at
    from generate_series(1, %(number)s) as i
), intents as (
    insert into eve.intent (
        queue_id, item, work_id, class_id, lane, payload, payload_size, payload_digest,
        operation_identity, effect_identity, cancellation_identity, requested_at, priority_class,
        replay_class, completion_test, depth, edges, derived, principal, submitted_at)
    select k.queue_id, m.item, '~' || m.item, k.class_id, k.lane, '{}', 2, sha256('{}'), k.name,
        k.name || ':~' || m.item, '~' || m.item, m.at, m.rank, 'safe', 'report', 0, 0, '{}',
        't_producer', m.at
    from made as m, eve.work_class as k where k.queue_id = %(queue)s and k.name = %(class)s
), hashed as materialized (
    select m.*, e.*, eve._hash(
        null, %(queue)s, m.item, 1, e.tx, 'admitted', 'ready', m.at, 't_producer', 't_producer',
        null,
        0, 1, null, null, null, null, m.rank, null, null, e.data) as hash
    from made as m, (
        select pg_current_xact_id() as tx, jsonb_build_object(
            'class', %(class)s::text, 'digest', encode(sha256('{}'), 'hex'), 'size', 2) as data
    ) as e
), events as (
    insert into eve.ledger (
        queue_id, item, version, tx, kind, phase, at, actor, principal, epoch, revision, rank, data,
        hash)
    select %(queue)s, h.item, 1, h.tx, 'admitted', 'ready', h.at, 't_producer', 't_producer', 0, 1,
        h.rank, h.data, h.hash
    from hashed as h
), states as (
    insert into eve.work_item (queue_id, item, class_id, lane, size, coalesces, effect_unique,
        limited, queue_state, hash)
    select k.queue_id, h.item, k.class_id, k.lane, 2, false, false, false,
        eve.step(null, eve._event(
        'admitted', 'ready', h.at, 't_producer', null, 0, 1, null, null, null, null, h.rank, null,
        null)), h.hash
    from hashed as h, eve.work_class as k where k.queue_id = %(queue)s and k.name = %(class)s
), tallies as (
    insert into eve.tally (queue_id, class_id, tx, item, version, phase, size)
    select %(queue)s, k.class_id, h.tx, h.item, 1, 'ready', 2
    from hashed as h, eve.work_class as k where k.queue_id = %(queue)s and k.name = %(class)s
)
insert into eve.ready (queue_id, lane, rank, late, ready_since, item, class_id)
select k.queue_id, k.lane, h.rank, false, h.at, h.item, k.class_id
from hashed as h, eve.work_class as k where k.queue_id = %(queue)s and k.name = %(class)s
"""
TAKE = """
do $do$
declare
    items bigint[] := '{{}}';
    tokens bigint[] := '{{}}';
begin
    for i in 1..{turns} loop
        if i % 2 = 0 then
            select coalesce(array_agg(t.item), '{{}}'), coalesce(array_agg(t.token), '{{}}')
            into items, tokens
            from eve_turn('q', 'w', items, tokens, classes => {classes}, max_items => 10) as t
            where t.part = 'acquire' and t.granted;
        else
            perform eve_complete_batch('q', items, tokens);
            commit;
            select coalesce(array_agg(a.item), '{{}}'), coalesce(array_agg(a.token), '{{}}')
            into items, tokens
            from eve_acquire('q', 'w', classes => {classes}, max_items => 10) as a
            where a.granted;
        end if;
        if items = '{{}}' then
            raise 'nothing is left to take';
        end if;
        commit;
    end loop;
    perform eve_complete_batch('q', items, tokens);
    commit;
end
$do$
"""
CALLS = {
    "next": "select * from eve_acquire('q', 'w')",
    "next of a class": "select * from eve_acquire('q', 'w', classes => '{default}')",
    "turn": "select * from eve_turn('q', 'w')",
    "named": "select * from eve_acquire('q', 'w', item => %(named)s)",
    "nothing ready": "select * from eve_acquire('q', 'w', classes => '{idle}')",
    "pool full": "select * from eve_acquire('q', 'w', pool => 'full')",
}
KEEP = "select * from eve_acquire('q', 'w', classes => '{idle}')"


@dataclass
class Flat:
    """A queue of three classes in one lane and two pools, one of them full; autovacuum is off.

    Items of class `first`, one a rank, are older than all others: until they are taken the marks of
    the lane stand still, and `default` needs its own.
    """

    desk: Desk
    worker: Connection = field(init=False)
    named: int = field(init=False)

    def __post_init__(self) -> None:
        db = self.desk.db
        tables = db.rows(
            "select relname from pg_class"
            " where relnamespace = 'eve'::regnamespace and relkind = 'r'"
        )
        for table in tables:
            db.rows(f"alter table eve.{table.relname} set (autovacuum_enabled = false)")
        for name in ("first", "idle"):
            self.desk.define(name, replay_class="safe")
        self.desk.approve("full", 1)
        self.named = self.desk.item()
        self.desk.lease(item=self.named)
        self.desk.approve("cloud", 30)
        self.named = self.desk.item(priority_class=3)
        self.worker = db.connect("t_worker")
        self.load(4, "first", age=36_000)

    def load(self, number: int, name: str = "default", *, age: int = 0) -> None:
        """So many items, ranks in turn, ready now or `age` seconds ago (before there are marks)."""
        with self.desk.db.kept().transaction():
            self.desk.db.rows("select pg_current_xact_id()")  # before the clock, as all who submit
            self.desk.db.rows(
                LOAD,
                {"number": number, "queue": self.desk.id, "class": name, "ranks": 4, "age": age},
            )

    def take(self, number: int, *, classes: str = "null") -> None:
        """So many items leased and completed, in tens, by a turn and by two calls in turn."""
        self.worker.execute(TAKE.format(turns=number // 10, classes=classes).encode())

    def buffers(self, call: str) -> int:
        """Shared buffers that one call touches, rolled back, in a second without housekeeping."""
        seen: list[int] = []
        for _ in range(9):
            self.worker.execute(KEEP)
            self.worker.execute("begin")
            row = self.worker.execute(
                "explain (analyze, buffers, timing off, format json) " + CALLS[call],
                {"named": self.named},
            ).fetchone()
            self.worker.execute("rollback")
            assert row is not None
            plan = row[0][0]["Plan"]
            seen.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return int(median(seen))

    def measured(self) -> dict[str, int]:
        return {call: self.buffers(call) for call in CALLS}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    return {call: round(after[call] / before[call], 2) for call in before}
