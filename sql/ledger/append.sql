-- ledger/append.sql · the only INSERT into the ledger.
begin;

create type eve.appended as (
    version integer,
    token bigint,
    phase text,
    at timestamptz
);

comment on type eve.appended is 'What the fold stamped on an appended event.';

create function eve._append(
    c eve.caller,
    item bigint,
    kind text,
    at timestamptz,
    phase text default null,
    worker text default null,
    revision integer default null,
    token bigint default null,
    pool text default null,
    slot integer default null,
    due_at timestamptz default null,
    rank smallint default null,
    attempts integer default null,
    reason text default null,
    data jsonb default null
)
returns eve.appended
language plpgsql
as $$
declare
    appended eve.appended;
begin
    insert into eve.ledger as l (
        queue_id, item, kind, phase, at, actor, principal, worker, epoch, revision, token, pool,
        slot, due_at, rank, attempts, reason, data)
    values (
        c.queue_id, _append.item, _append.kind, _append.phase, _append.at, c.actor, c.principal,
        _append.worker, c.epoch, _append.revision, _append.token, _append.pool, _append.slot,
        _append.due_at, _append.rank, _append.attempts, _append.reason, _append.data)
    returning l.version, l.token, l.phase, l.at into appended;
    return appended;
end
$$;

comment on function eve._append(
    eve.caller, bigint, text, timestamptz, text, text, integer, bigint, text, integer, timestamptz,
    smallint, integer, text, jsonb
) is
'Append one event; the ledger''s trigger folds it. Returns what was stamped: version, token, phase, at.';

commit;
