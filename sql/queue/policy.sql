-- queue/policy.sql · a class policy as one typed value: read from a document, checked, and the stricter of two.
begin;

create type eve.policy as (
    replay_class text,
    attempts integer,
    ttl_floor interval,
    ttl interval,
    ttl_ceiling interval,
    max_age interval,
    completion_test text,
    engine_verifies boolean,
    verifier_not_holder boolean,
    effect_starts boolean,
    cancel_boundary text,
    backoff_base interval,
    backoff_factor double precision,
    backoff_cap interval,
    backoff_jitter double precision,
    payload_limit integer,
    result_limit integer,
    retention interval,
    child_depth integer,
    child_fan_out integer,
    completion_margin interval,
    retry_owner text,
    own_lane boolean,
    pools text[],
    protection jsonb
);

comment on type eve.policy is
'The policy of a class. Times are intervals, limits bytes. Fields may be added, their types never change.';

create function eve._policy_of(preset text, document jsonb)
returns eve.policy
language plpgsql
stable
as $$
declare
    policy eve.policy;
    answers jsonb;
    field text;
begin
    select p.policy into answers from eve.preset as p where p.preset = _policy_of.preset;
    if not found then
        perform eve._raise('22023', pg_catalog.format('unknown preset "%s"', pg_catalog.left(preset, 200)),
            pg_catalog.jsonb_build_object('presets',
                (select pg_catalog.jsonb_agg(p.preset order by p.preset) from eve.preset as p)),
            'Use one of the presets in the detail.');
    end if;
    if pg_catalog.jsonb_typeof(document) <> 'object' then
        perform eve._raise('22023', 'policy is not a JSON object', null,
            'Pass an object such as {"attempts": 5}.');
    end if;
    select k.key into field
    from pg_catalog.jsonb_object_keys(document) as k (key)
    where k.key not in (
        select a.attname from pg_catalog.pg_attribute as a
        where a.attrelid = (select t.typrelid from pg_catalog.pg_type as t
            where t.oid = 'eve.policy'::pg_catalog.regtype))
    order by k.key limit 1;
    if found then
        perform eve._raise('22023', pg_catalog.format('unknown policy field "%s"', pg_catalog.left(field, 200)),
            null,
            'The fields are the attributes of type eve.policy.');
    end if;
    select
        null, c.attempts, c.ttl_floor, c.ttl, c.ttl_ceiling, c.max_age, 'report', true, false, false,
        'immediate', '10 s', 2::float8, '1 h', 0.2::float8, 1048576, 1048576, '30 days', 8, 1000, '0 s', 'queue',
        false, null, null
    into policy
    from eve.contract as c;
    begin
        policy := pg_catalog.jsonb_populate_record(policy, answers || document);
        perform (policy.protection ->> 'retention')::interval;
    exception when data_exception or invalid_text_representation or array_subscript_error then
        perform eve._raise('22023', 'a policy field has a value of another type',
            pg_catalog.jsonb_build_object('because', pg_catalog.left(sqlerrm, 200)),
            'Write intervals as text such as "90 s", limits as whole numbers.');
    end;
    perform eve._check_policy(policy);
    return policy;
end
$$;

comment on function eve._policy_of(text, jsonb) is
'The policy that a preset and a document give. Refuses unknown presets, unknown fields and values out of range with 22023.';

create function eve._check_policy(policy eve.policy)
returns void
language plpgsql
stable
as $$
declare
    fault text;
begin
    fault := case
        when policy.replay_class is null then 'replay_class is not said'
        when not exists (select from eve.replay_class as r where r.replay_class = policy.replay_class)
            then 'replay_class is not one of the five'
        when (policy.attempts between 1 and 1000) is not true then 'attempts is not between 1 and 1000'
        when not pg_catalog.isfinite(policy.ttl_floor) or (policy.ttl_floor >= interval '1 s') is not true
            then 'ttl_floor is below one second'
        when not pg_catalog.isfinite(policy.ttl_ceiling)
            or (policy.ttl_ceiling >= policy.ttl_floor) is not true
            or policy.ttl_ceiling > interval '30 days'
            then 'ttl_ceiling is not between ttl_floor and 30 days'
        when (policy.ttl between policy.ttl_floor and policy.ttl_ceiling) is not true
            then 'ttl is not between ttl_floor and ttl_ceiling'
        when not pg_catalog.isfinite(policy.max_age)
            or (policy.max_age >= policy.ttl_floor) is not true
            or policy.max_age > interval '30 days'
            then 'max_age is not between ttl_floor and 30 days'
        when (policy.completion_test in ('report', 'effects', 'review')) is not true
            then 'completion_test is not report, effects or review'
        when policy.completion_test = 'review' and policy.engine_verifies
            then 'engine_verifies contradicts completion_test review'
        when (policy.cancel_boundary in ('immediate', 'effect_start')) is not true
            then 'cancel_boundary is not immediate or effect_start'
        when not pg_catalog.isfinite(policy.backoff_base)
            or (policy.backoff_base between interval '0' and interval '30 days') is not true
            then 'backoff_base is not between 0 and 30 days'
        when not pg_catalog.isfinite(policy.backoff_cap)
            or (policy.backoff_cap between interval '0' and interval '30 days') is not true
            then 'backoff_cap is not between 0 and 30 days'
        when (policy.backoff_factor between 1 and 100) is not true then 'backoff_factor is not between 1 and 100'
        when (policy.backoff_jitter between 0 and 1) is not true then 'backoff_jitter is not between 0 and 1'
        when (policy.payload_limit between 0 and 67108864) is not true
            then 'payload_limit is not between 0 and 64 MiB'
        when (policy.result_limit between 0 and 67108864) is not true
            then 'result_limit is not between 0 and 64 MiB'
        when (policy.retention between interval '0' and interval '1000 years') is not true
            then 'retention is not between 0 and 1000 years'
        when (policy.child_depth between 0 and 100) is not true then 'child_depth is not between 0 and 100'
        when (policy.child_fan_out between 0 and 1000000) is not true
            then 'child_fan_out is not between 0 and 1000000'
        when (policy.completion_margin between interval '0' and interval '100 years') is not true
            then 'completion_margin is not between 0 and 100 years'
        when (pg_catalog.octet_length(policy.retry_owner) between 1 and 200) is not true
            or policy.retry_owner ~ '[[:cntrl:]]'
            then 'retry_owner is not a short text'
        when policy.pools is not null and (
            (pg_catalog.array_ndims(policy.pools) = 1) is not true
            or exists (select from pg_catalog.unnest(policy.pools) as p (name)
                where (pg_catalog.octet_length(p.name) between 1 and 200) is not true))
            then 'pools is not a list of short names'
        when policy.engine_verifies is null or policy.verifier_not_holder is null
            or policy.effect_starts is null or policy.own_lane is null then 'a yes-or-no field is null'
        when policy.replay_class = 'destination_protected'
            and (pg_catalog.jsonb_typeof(policy.protection) = 'object'
                and policy.protection ?& array['scope', 'retention', 'canonical_inputs',
                    'conflict_behaviour', 'authority', 'after_retention']) is not true
            then 'protection does not state scope, retention, canonical_inputs, conflict_behaviour,'
                ' authority and after_retention'
        when policy.replay_class = 'destination_protected'
            and (pg_catalog.jsonb_typeof(policy.protection -> 'retention') = 'string'
                and (policy.protection ->> 'retention')::interval
                    between interval '0' and interval '1000 years') is not true
            then 'the retention of protection is not between 0 and 1000 years'
    end;
    if fault is not null then
        perform eve._raise('22023', pg_catalog.format('policy refused: %s', fault),
            pg_catalog.jsonb_build_object('fault', fault),
            'Correct the field in the policy document.');
    end if;
end
$$;

comment on function eve._check_policy(eve.policy) is
'Refuse a policy with a field that is missing, out of range or contradicts another (22023).';

create function eve._stricter(admitted eve.policy, current eve.policy)
returns eve.policy
language plpgsql
immutable
as $$
declare
    policy eve.policy := current;
begin
    policy.attempts := least(admitted.attempts, current.attempts);
    policy.ttl_floor := greatest(admitted.ttl_floor, current.ttl_floor);
    policy.ttl_ceiling := least(admitted.ttl_ceiling, current.ttl_ceiling);
    policy.ttl := greatest(policy.ttl_floor, least(current.ttl, policy.ttl_ceiling));
    policy.max_age := least(admitted.max_age, current.max_age);
    policy.completion_margin := greatest(admitted.completion_margin, current.completion_margin);
    policy.verifier_not_holder := admitted.verifier_not_holder or current.verifier_not_holder;
    policy.engine_verifies := admitted.engine_verifies and current.engine_verifies;
    -- Without a recorded start a loss is uncertain: who does not declare starts is the stricter.
    policy.effect_starts := admitted.effect_starts and current.effect_starts;
    policy.payload_limit := least(admitted.payload_limit, current.payload_limit);
    policy.result_limit := least(admitted.result_limit, current.result_limit);
    if admitted.completion_test = 'review'
        or (admitted.completion_test = 'effects' and current.completion_test = 'report') then
        policy.completion_test := admitted.completion_test;
    end if;
    return policy;
end
$$;

comment on function eve._stricter(eve.policy, eve.policy) is
'The stricter of the policy at admission and of now, field by field.';

commit;
