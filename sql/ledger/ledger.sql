-- ledger/ledger.sql · append-only events, dense by item, chained by hash: the only truth.
begin;

create function eve._event_shape(
    item bigint,
    version integer,
    kind text,
    at timestamptz,
    token bigint,
    rank smallint,
    hash bytea
)
returns boolean
language plpgsql
immutable
parallel safe
as $$
begin
    -- A call, not an expression: a constraint's expression is planned anew by every statement.
    if (version >= 1 and pg_catalog.isfinite(at) and pg_catalog.octet_length(hash) = 32) is not true
        or (token between 1 and 9007199254740991) is false
        or (rank between 0 and 3) is false then
        return false;
    end if;
    if item > 0 then
        return kind in (
            'acquired', 'completed', 'admitted', 'renewed', 'held', 'released', 'failed', 'returned',
            'lease_expired', 'lease_missing', 'lease_superseded', 'effect_started',
            'effect_observed', 'reported', 'verified', 'reconciled', 'parked', 'unparked',
            'cancel_requested', 'cancelled', 'expired', 'rejected', 'reprioritised', 'coalesced',
            'imported', 'absorbed', 'compensated', 'dead', 'purged');
    end if;
    return item = 0 and kind in (
        'queue_created', 'class_defined', 'pool_defined', 'access_granted', 'access_revoked',
        'decision_proposed', 'decision_accepted', 'decision_declined', 'decision_consumed',
        'halted', 'resumed', 'paused', 'unpaused', 'epoch_started', 'clock_stepped',
        'schedule_defined', 'schedule_dropped', 'sealed', 'archived');
end
$$;

comment on function eve._event_shape(bigint, integer, text, timestamptz, bigint, smallint, bytea) is
'Whether a ledger row is well-formed: version, instant, token, rank and hash in range, the kind one of those of items or of the queue.';

create table eve.ledger (
    queue_id bigint not null,
    item bigint not null,
    version integer not null,
    tx xid8 not null default pg_current_xact_id(),
    kind text not null,
    phase text,
    at timestamptz not null,
    actor text not null,
    principal text not null,
    worker text,
    epoch bigint not null,
    revision integer,
    token bigint,
    pool text,
    slot integer,
    due_at timestamptz,
    rank smallint,
    attempts integer,
    reason text,
    data jsonb,
    hash bytea not null,
    constraint ledger_pkey primary key (queue_id, item, version),
    constraint ledger_event_shape
    check (eve._event_shape(item, version, kind, at, token, rank, hash) is true)
);

create index ledger_tx on eve.ledger (tx);

comment on table eve.ledger is
'The append-only events of every item (item 0: of the queue itself), versions dense from 1, each hashed over the one before. Nothing updates, deletes or truncates it.';

create function eve._guard()
returns trigger
language plpgsql
as $$
begin
    perform eve._raise('55000',
        pg_catalog.format('table "%s" is append-only', tg_table_name),
        pg_catalog.jsonb_build_object('operation', tg_op),
        'Append a new event instead.');
    return null;
end
$$;

comment on function eve._guard() is
'Refuse UPDATE, DELETE and TRUNCATE of an append-only table (55000).';

create trigger ledger_guard_row before update or delete on eve.ledger
for each row execute function eve._guard();

create trigger ledger_guard_truncate before truncate on eve.ledger
for each statement execute function eve._guard();

alter table eve.ledger enable always trigger ledger_guard_row;
alter table eve.ledger enable always trigger ledger_guard_truncate;

comment on trigger ledger_guard_row on eve.ledger is 'Events are never changed or removed.';
comment on trigger ledger_guard_truncate on eve.ledger is 'Events are never truncated away.';

create function eve._event(
    kind text,
    phase text,
    at timestamptz,
    principal text,
    worker text,
    epoch bigint,
    revision integer,
    token bigint,
    pool text,
    slot integer,
    due_at timestamptz,
    rank smallint,
    attempts integer,
    reason text
)
returns eve.event
language plpgsql
immutable
as $$
declare
    e eve.event;
begin
    e.kind := _event.kind;
    e.phase := _event.phase;
    e.at := _event.at;
    e.principal := _event.principal;
    e.worker := _event.worker;
    e.epoch := _event.epoch;
    e.revision := _event.revision;
    e.token := _event.token;
    e.pool := _event.pool;
    e.slot := _event.slot;
    e.due_at := _event.due_at;
    e.rank := _event.rank;
    e.attempts := _event.attempts;
    e.reason := _event.reason;
    return e;
end
$$;

comment on function eve._event(
    text, text, timestamptz, text, text, bigint, integer, bigint, text, integer, timestamptz,
    smallint, integer, text
) is
'The typed event of a ledger row, built field by field so that new attributes need no change here.';

commit;
