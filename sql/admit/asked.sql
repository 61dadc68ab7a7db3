-- admit/asked.sql · a submission as the checks see it.
begin;

create type eve.asked as (
    class text,
    class_id integer,
    revision integer,
    policy eve.policy,
    at timestamptz,
    work_id text,
    operation_identity text,
    effect_identity text,
    cancellation_identity text,
    coalescing_key text,
    limit_key text,
    payload jsonb,
    size integer,
    digest bytea,
    replay_class text,
    lineage_fault text,
    not_before timestamptz,
    deadline timestamptz,
    margin interval,
    value_until timestamptz,
    awaited bigint,
    effect_named boolean,
    expected_effects text[],
    completion_test text,
    priority_class smallint,
    alone boolean,
    requested_at timestamptz,
    derived text[]
);

comment on type eve.asked is
'A submission as the checks see it: its envelope resolved, the class and the revision that judges it; derived names what the engine filled in.';

create type eve.past as (
    at timestamptz,
    cancelled boolean,
    awaited text,
    schema jsonb,
    payload jsonb,
    effect_seen boolean,
    effect_live boolean,
    oldest_eligible timestamptz,
    capacity eve.capacity,
    health jsonb
);

comment on type eve.past is
'What the checks would have read at an earlier instant: given to them, they judge a recorded submission and read nothing of now. Without an instant they read the present.';

commit;
