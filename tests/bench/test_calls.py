"""Server time of a call, against a bare SKIP LOCKED table in the same run; where a turn spends it.

Each call is made in a loop inside the server, a commit each, so that neither client nor network is
in the figure; `fsync` is off, so that the disk is not either. The kinds take turns in short rounds.
`bare` is claim and delete as two statements, `bare1` both in one; neither keeps anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from support.database import Connection, Database
from support.desk import Desk
from support.fleet import Fleet
from support.race import scaled

Tell = Callable[..., None]
ROUNDS, CALLS = 8, 250
PAYLOAD = '{"url": "https://example.org/a/rather/long/path/to/something", "size": 4711, "x": "yz"}'

BARE = """
create table public.job (
    id bigint generated always as identity primary key,
    payload jsonb not null,
    claimed_at timestamptz
);
create index on public.job (id) where claimed_at is null;
grant all on public.job to public;
"""
LOOP = """
do $do$
declare
    payload jsonb := '%(payload)s';
    item bigint;
    token bigint;
    items bigint[] := '{}';
    tokens bigint[] := '{}';
    claimed bigint;
    began timestamptz;
    spent interval := '0';
    answer record;
begin
    %(first)s
    for i in 1..%(calls)s loop
        %(before)s
        began := clock_timestamp();
        %(call)s
        spent := spent + (clock_timestamp() - began);
        %(after)s
        commit;
    end loop;
    %(last)s
    perform set_config('bench.spent', (extract(epoch from spent) * 1e6)::text, false);
end
$do$
"""
TAKE = "select a.item, a.token into item, token from eve_acquire('q', 'w') as a;"
DONE = "perform eve_complete('q', item, token);"
FIND = """(select j.id from public.job as j where j.claimed_at is null
            order by j.id limit 1 for update skip locked)"""
KINDS: dict[str, dict[str, str]] = {
    "bare insert": {"call": "insert into public.job (payload) values (payload);"},
    "bare": {
        "call": f"""update public.job as j set claimed_at = now() where j.id = {FIND}
            returning j.id, j.payload into claimed, payload;
            delete from public.job as j where j.id = claimed;"""
    },
    "bare1": {
        "call": f"""delete from public.job as j where j.id = {FIND}
            returning j.id, j.payload into claimed, payload;"""
    },
    "eve_submit": {"call": "perform eve_submit('q', payload);"},
    "eve_submit keyed": {
        "call": "perform eve_submit('q', payload, idempotency_key => gen_random_uuid()::text);"
    },
    "eve_acquire": {"call": TAKE, "after": DONE},
    "eve_complete": {"before": TAKE, "call": DONE},
    "eve_turn": {
        "first": TAKE,
        "call": """select t.item, t.token into item, token
            from eve_turn('q', 'w', array[item], array[token]) as t where t.part = 'acquire';""",
        "last": DONE,
    },
    "eve_turn of 10": {
        "call": """select array_agg(t.item), array_agg(t.token) into items, tokens
            from eve_turn('q', 'w', items, tokens, max_items => 10) as t
            where t.part = 'acquire';""",
        "last": "perform eve_complete_batch('q', items, tokens);",
    },
}
JOBS = {"eve_turn of 10": 10}  # jobs a call
PROFILE = """
select p.oid::regprocedure::text as function, s.lineno, s.exec_stmts as calls,
    s.total_time as ms, s.source
from pg_proc as p
cross join lateral plpgsql_profiler_function_tb(p.oid) as s
where p.pronamespace in ('eve'::regnamespace, 'public'::regnamespace)
    and p.prolang = (select oid from pg_language where lanname = 'plpgsql')
    and p.proname like any (array['eve%%', '\\_%%', 'step']) and s.exec_stmts > 0
order by s.total_time desc nulls last
"""


@pytest.fixture(scope="module")
def db(fleet: Fleet) -> Iterator[Database]:
    with fleet.home().database(shipped=True) as database:
        database.rows(BARE.encode().decode())
        yield database


@pytest.fixture(scope="module")
def desk(db: Database) -> Desk:
    desk = Desk(db, db.make_queue())
    desk.call("t_operator", "eve_grant_access", role="t_worker", capability="producer")
    db.rows("grant eve_producer to t_worker")
    desk.approve("cloud", 50)
    return desk


def spent(worker: Connection, kind: str, calls: int) -> float:
    """Microseconds a job."""
    calls = max(1, calls // JOBS.get(kind, 1))
    parts = {"first": "", "before": "", "after": "", "last": "", **KINDS[kind]}
    worker.execute((LOOP % {"payload": PAYLOAD, "calls": calls, **parts}).encode())
    row = worker.execute("select current_setting('bench.spent')::float8").fetchone()
    assert row is not None
    return float(row[0]) / calls / JOBS.get(kind, 1)


def test_server_time_of_a_call(desk: Desk, tell: Tell) -> None:
    worker = desk.db.connect("t_worker")
    calls = scaled(CALLS)
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind in ("bare insert", "eve_submit"):
            spent(worker, kind, 3 * calls)  # what the others take
        for kind in KINDS:
            found[kind].append(spent(worker, kind, calls))
    us = {kind: round(median(values), 1) for kind, values in found.items()}
    for kind, value in us.items():
        bare = us["bare insert"] if kind.startswith("eve_submit") else us["bare"]
        tell("call", call=kind, us=value, times_bare=round(value / bare, 1))
    two = us["eve_acquire"] + us["eve_complete"]
    tell("turn", turn_us=us["eve_turn"], two_calls_us=two, ratio=round(us["eve_turn"] / two, 2))
    assert us["eve_turn"] < two


def test_where_a_turn_spends_its_time(desk: Desk, tell: Tell) -> None:
    """By the profiler of plpgsql_check: a statement includes what it calls."""
    db = desk.db
    if not db.rows("select 1 from pg_available_extensions where name = 'plpgsql_check'"):
        tell("profile", note="plpgsql_check is not installed")
        return
    db.rows("create extension if not exists plpgsql_check")
    worker = db.connect("postgres")
    calls = scaled(CALLS)
    for verb, load in (("eve_turn", 2 * calls), ("eve_submit", 0)):
        plain = db.connect("t_worker")
        if load:
            spent(plain, "eve_submit", load)
        worker.execute("load 'plpgsql_check'")
        worker.execute("select plpgsql_profiler_reset_all()")
        worker.execute("set plpgsql_check.profiler to on")
        worker.execute("set role t_worker")
        spent(worker, verb, calls)
        worker.execute("reset role")
        worker.execute("set plpgsql_check.profiler to off")
        total = 0.0
        for row in worker.execute(PROFILE).fetchall()[:40]:
            us = round(row.ms * 1000 / calls, 1)
            total = total or us
            if us < 3:
                break
            tell(
                "profile", verb=verb, us=us, share=round(us / total, 2), line=row.lineno,
                calls=round(row.calls / calls, 1), function=row.function.split("(")[0],
                source=" ".join((row.source or "").split())[:90],
            )  # fmt: skip
