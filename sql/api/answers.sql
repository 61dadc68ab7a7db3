-- api/answers.sql · what the verbs answer: composites of their own, never a table's row type.
begin;

create type public.eve_lease as (
    item bigint,
    token bigint
);

comment on type public.eve_lease is
'A lease as an argument: row(item, token).';

create type eve.admission_answer as (
    decision text,
    reason text,
    item bigint,
    work_id text,
    phase text,
    version integer,
    revision integer,
    submission bigint,
    survivor bigint,
    wait_hint interval,
    evidence jsonb,
    replayed boolean
);

comment on type eve.admission_answer is
'Answer of eve_submit: ADMIT, REJECT, EXPIRE, COALESCE or HOLD with a typed reason; the item when stored, else the submission record.';

create type eve.acquisition_answer as (
    granted boolean,
    refusal text,
    item bigint,
    work_id text,
    lease text,
    token bigint,
    attempt integer,
    attempts_left integer,
    expires_at timestamptz,
    clamped boolean,
    cancel_requested boolean,
    class text,
    revision integer,
    payload jsonb,
    checkpoint jsonb,
    last_error text,
    effect_identity text,
    deadline timestamptz,
    answers jsonb,
    pool text,
    trace text,
    next_at timestamptz,
    retry_after interval,
    next jsonb,
    detail jsonb,
    replayed boolean
);

comment on type eve.acquisition_answer is
'Answer of eve_acquire: granted with lease, token and payload; or a refusal with detail and next; or neither, when nothing is ready, with next_at.';

create type eve.lease_answer as (
    item bigint,
    token bigint,
    expires_at timestamptz,
    clamped boolean,
    cancel_requested boolean,
    detail jsonb,
    replayed boolean
);

comment on type eve.lease_answer is
'Answer of a call that keeps the lease: until when it lives, and whether a cancellation was asked.';

create type eve.finish_answer as (
    item bigint,
    accepted boolean,
    refusal text,
    phase text,
    version integer,
    next_at timestamptz,
    missing text[],
    detail jsonb,
    replayed boolean
);

comment on type eve.finish_answer is
'Answer of a call that ends the lease: the phase reached, what effects are missing, when it is tried again.';

create type eve.turn_answer as (
    part text,
    item bigint,
    accepted boolean,
    refusal text,
    phase text,
    version integer,
    missing text[],
    granted boolean,
    work_id text,
    lease text,
    token bigint,
    attempt integer,
    attempts_left integer,
    expires_at timestamptz,
    clamped boolean,
    cancel_requested boolean,
    class text,
    revision integer,
    payload jsonb,
    checkpoint jsonb,
    last_error text,
    effect_identity text,
    deadline timestamptz,
    answers jsonb,
    pool text,
    trace text,
    next_at timestamptz,
    retry_after interval,
    next jsonb,
    detail jsonb,
    replayed boolean
);

comment on type eve.turn_answer is
'Answer of eve_turn: one row a finished item (part "finish"), then the rows of the acquisition (part "acquire").';

create type eve.act_answer as (
    done boolean,
    item bigint,
    decision bigint,
    phase text,
    version integer,
    detail jsonb,
    replayed boolean
);

comment on type eve.act_answer is
'Answer of an act on an item or on the queue (item 0): whether it changed anything, and the version of its event.';

create type eve.item_answer as (
    item bigint,
    work_id text,
    class text,
    status text,
    phase text,
    version integer,
    attempts integer,
    attempts_left integer,
    token bigint,
    holder text,
    worker text,
    expires_at timestamptz,
    rank smallint,
    ready_since timestamptz,
    reason text,
    holds jsonb,
    dependencies jsonb,
    payload jsonb,
    result jsonb,
    progress jsonb,
    checkpoint jsonb,
    intent jsonb,
    at timestamptz,
    completion jsonb,
    spent numeric
);

comment on type eve.item_answer is
'Answer of eve_item: the present state of one item, its waiting reasons, dependencies, payload, result and envelope; once completed also the record of what completion preserves and does not prove, and what it has spent.';

create type eve.event_answer as (
    version integer,
    kind text,
    phase text,
    at timestamptz,
    actor text,
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
    reason text,
    data jsonb,
    hash bytea
);

comment on type eve.event_answer is 'One event of an item''s history, as eve_history returns it.';

create type eve.explain_answer as (
    item bigint,
    status text,
    phase text,
    code text,
    because text,
    remedy text,
    owner text,
    detail jsonb
);

comment on type eve.explain_answer is
'One reason of eve_explain: why the item cannot run, what would change that, and who can.';

create type eve.audit_answer as (
    queue text,
    events bigint,
    items bigint,
    replay text,
    chain text,
    slots text,
    indexes text,
    clean boolean,
    faults jsonb
);

comment on type eve.audit_answer is
'Answer of eve_audit: whether replay equals projection, the hash chain is intact, slots and search structures agree; faults name what does not.';

create type eve.sweep_answer as (
    recovered integer,
    released integer,
    expired integer,
    rechecked integer,
    repaired integer,
    dead integer,
    forgotten integer,
    faults jsonb
);

comment on type eve.sweep_answer is
'Answer of eve_sweep and eve_recover: how many leases were recovered, holds released, items expired, edges looked at again, slots repaired, quarantines ended, request keys forgotten; faults name rows that were skipped.';

create type eve.stats_answer as (
    class text,
    status text,
    phase text,
    items bigint,
    oldest_since timestamptz
);

comment on type eve.stats_answer is 'One line of eve_stats: items of a class in a phase, and the oldest instant among them.';

commit;
