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
    awaited bigint
);

comment on type eve.asked is
'A submission as the checks see it: its envelope resolved, the class and the revision that judges it.';

commit;
