-- fold/state.sql · the state of an item, and the typed event that moves it. Attributes may be added, their types never change.
begin;

create type eve.state as (
    version integer,
    phase text,
    at timestamptz,
    attempts integer,
    allowance integer,
    credits integer,
    token bigint,
    principal text,
    worker text,
    pool text,
    slot integer,
    acquired_at timestamptz,
    expires_at timestamptz,
    ready_since timestamptz,
    late boolean,
    rank smallint,
    revision integer,
    effect_started boolean,
    cancel_requested boolean,
    reason text
);

comment on type eve.state is
'The fold of an item''s events: phase, attempts (acquisitions; allowance and credits widen the budget), token, lease, place in the order. For item 0 only version and at.';

create type eve.event as (
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
);

comment on type eve.event is
'The typed columns of a ledger row that the step reads. Policy''s choice of the next phase is said in phase.';

commit;
