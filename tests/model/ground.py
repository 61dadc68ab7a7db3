"""What the model tests stand on: helpers in the database, values in and out, how much to run."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from hypothesis import HealthCheck, settings

from model.twin import Event, State
from support.database import Database

SCALE = float(os.environ.get("EVE_SCALE", "1"))

# CI runs the same examples each time; with EVE_SCALE they are new ones, or those of EVE_SEED.
SEED = os.environ.get("EVE_SEED", str(secrets.randbits(32)) if "EVE_SCALE" in os.environ else "0")
HERE = settings(
    deadline=None,
    database=None,
    derandomize="EVE_SCALE" not in os.environ,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def scaled(examples: int, **more: Any) -> settings:
    return settings(HERE, max_examples=max(1, round(examples * SCALE)), **more)


# try_step: the step on its own. run_events: events through eve._append with what the verbs do
# beside it: the ready row and the slot of a lease are taken first, given back after its end.
HELPERS = """
create function public.try_step(state jsonb, event jsonb) returns jsonb language plpgsql as $$
begin
    return to_jsonb(eve.step(
        case when state <> 'null' then jsonb_populate_record(null::eve.state, state) end,
        jsonb_populate_record(null::eve.event, event)));
exception when others then
    return to_jsonb(sqlstate);
end
$$;

create function public.append_one(q bigint, op jsonb) returns jsonb language plpgsql as $$
declare
    c eve.caller;
    e eve.event := jsonb_populate_record(null::eve.event, op -> 'event');
    n bigint := (op ->> 'item')::bigint;
    was eve.state;
    now eve.state;
begin
    c.queue_id := q;
    c.actor := op ->> 'actor';
    c.principal := e.principal;
    c.epoch := e.epoch;
    was := (select w.queue_state from eve.work_item as w where w.queue_id = q and w.item = n);
    if e.kind = 'acquired' and was.phase = 'ready' then
        delete from eve.ready as r where r.queue_id = q and r.item = n;
        e.slot := case when e.slot is not null then eve._take_slot(q, e.pool) end;
    end if;
    perform eve._append(c, n, e.kind, e.at, e.phase, e.worker, e.revision, e.token, e.pool, e.slot,
        e.due_at, e.rank, e.attempts, e.reason, nullif(op -> 'data', 'null'));
    now := (select w.queue_state from eve.work_item as w where w.queue_id = q and w.item = n);
    if was.phase = 'leased' and now.phase <> 'leased' then
        delete from eve.held_slot as h where h.queue_id = q and h.item = n;
        perform eve._put_slot(q, was.pool, was.slot);
    end if;
    return to_jsonb(now);
exception when others then
    raise notice 'append_one: % %', sqlerrm, op;
    return to_jsonb(sqlstate);
end
$$;

create function public.run_events(q bigint, ops jsonb) returns setof jsonb language plpgsql as $$
declare
    op jsonb;
begin
    for op in
        select o.value from jsonb_array_elements(ops) with ordinality as o order by o.ordinality
    loop
        return next public.append_one(q, op);
    end loop;
end
$$;

create function public.event_of(l eve.ledger) returns eve.event language sql immutable as $$
    select eve._event(l.kind, l.phase, l.at, l.principal, l.worker, l.epoch, l.revision, l.token,
        l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason)
$$;

-- What is derived from the ledger, in comparable form. When a hold is looked at again is not.
create function public.derived(q bigint) returns jsonb language sql stable as $$
    select jsonb_build_object(
        'work_item', (select jsonb_agg(to_jsonb(w) order by w.item)
            from eve.work_item as w where w.queue_id = q),
        'ready', (select jsonb_agg(to_jsonb(r) order by r.item)
            from eve.ready as r where r.queue_id = q),
        'hold', (select jsonb_agg(jsonb_build_array(h.item, h.reason, h.ref, h.owner, h.trigger,
                h.due_at, h.open_edges) order by h.item, h.reason, h.ref)
            from eve.hold as h where h.queue_id = q),
        'held_slot', (select jsonb_agg(to_jsonb(s) order by s.item)
            from eve.held_slot as s where s.queue_id = q),
        'pool', (select jsonb_agg(to_jsonb(p) - 'numbers' || jsonb_build_object('free', (
                select count(*) from eve.free_slot as f
                where f.queue_id = q and f.pool = p.pool)) order by p.pool)
            from eve.pool as p where p.queue_id = q))
$$;
"""


def prepare(db: Database) -> None:
    db.kept().execute(HELPERS.encode())
    db.kept().execute("set timezone to 'UTC'")


def as_json(value: Event | State | None) -> dict[str, object] | None:
    """What jsonb_populate_record reads."""
    if value is None:
        return None
    return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in asdict(value).items()}


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


INSTANTS = frozenset({"at", "acquired_at", "expires_at", "ready_since"})
ATTRIBUTES = tuple(f.name for f in fields(State))


def as_state(value: Mapping[str, Any]) -> State:
    """A state as to_jsonb wrote it; refuses an attribute that the twin does not know."""
    assert set(value) == set(ATTRIBUTES), "eve.state has other attributes than its twin"
    given: dict[str, Any] = {
        k: datetime.fromisoformat(v) if k in INSTANTS and v is not None else v
        for k, v in value.items()
    }
    return State(**given)
