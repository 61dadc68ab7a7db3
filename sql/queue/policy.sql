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
    protection jsonb,
    evidence text,
    evidence_limit integer,
    freshness interval,
    measure_window interval,
    dependencies text[],
    budget_mode text,
    item_limit bigint,
    byte_limit bigint,
    shared_item_limit bigint,
    shared_byte_limit bigint,
    age_limit interval,
    age_action text,
    value_window interval,
    life interval,
    wait_hint interval,
    submitters text[],
    coalesce text,
    effect_unique boolean,
    limit_per_key integer,
    evidence_kinds text[],
    spend_limit numeric,
    spend_tree_limit numeric,
    schema_digest text
);

comment on type eve.policy is
'The policy of a class. Times are intervals, sizes bytes, counts whole numbers, spend in the unit that the class declares; null means that a limit is not set. Fields may be added, their types never change.';

create function eve._settings(out name text, out expected text)
returns setof record
language sql
stable
begin atomic
    select a.attname::text, case a.atttypid
        when 'text'::pg_catalog.regtype then 'string'
        when 'interval'::pg_catalog.regtype then 'string'
        when 'text[]'::pg_catalog.regtype then 'array'
        when 'boolean'::pg_catalog.regtype then 'boolean'
        when 'jsonb'::pg_catalog.regtype then null
        else 'number' end
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.typrelid = a.attrelid
    where t.oid = 'eve.policy'::pg_catalog.regtype and a.attnum > 0 and not a.attisdropped
        and a.attname <> 'schema_digest';
end;

comment on function eve._settings() is
'The attributes of eve.policy that a document may set, each with the JSON type that it is written in, null for any.';

create function eve._mistyped(document jsonb)
returns text
language plpgsql
stable
as $$
begin
    -- What is written as another type is a mistake, never converted: "3" is no count, 90 no interval.
    return (
        select pg_catalog.format('%s is not %s', s.name, case s.expected
            when 'number' then 'a number' when 'boolean' then 'true or false'
            when 'array' then 'a list of texts' else 'a text' end)
        from pg_catalog.jsonb_each(document) as k (key, value)
        join eve._settings() as s on s.name = k.key
        where pg_catalog.jsonb_typeof(k.value) <> 'null' and (
            pg_catalog.jsonb_typeof(k.value) <> s.expected
            or s.expected = 'array' and exists (
                select from pg_catalog.jsonb_array_elements(
                    case when s.expected = 'array' and pg_catalog.jsonb_typeof(k.value) = 'array'
                        then k.value else '[]' end) as e (value)
                where pg_catalog.jsonb_typeof(e.value) <> 'string'))
        order by k.key limit 1);
end
$$;

comment on function eve._mistyped(jsonb) is
'What is wrong with the types of a policy document, null when nothing is. A JSON null is a setting that is not set.';

create function eve._policy_of(preset text, document jsonb)
returns eve.policy
language plpgsql
stable
as $$
declare
    policy eve.policy;
    answers jsonb;
    wrong text;
    fault text;
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
    select k.key into wrong
    from pg_catalog.jsonb_object_keys(document) as k (key)
    where k.key not in (select s.name from eve._settings() as s) and k.key not in ('schema', 'declared')
    order by k.key limit 1;
    if found then
        perform eve._raise('22023', pg_catalog.format('unknown policy field "%s"', pg_catalog.left(wrong, 200)),
            pg_catalog.jsonb_build_object('fields', (
                select pg_catalog.jsonb_agg(x.name order by x.name) from (
                    select s.name from eve._settings() as s union all values ('schema'), ('declared')) as x (name))),
            coalesce((
                select case when f.settings = '{}' then 'The queue itself answers this one;' else
                    pg_catalog.format('It is answered by %s;', pg_catalog.array_to_string(f.settings, ', ')) end
                    || ' in words it is said under "declared".'
                from eve.policy_field as f where f.field = wrong),
                'The fields are those of the detail.'));
    end if;
    fault := eve._mistyped(document);
    fault := case
        when fault is not null then fault
        when pg_catalog.octet_length(document::text) > 2097152 then 'the document is larger than 2 MiB'
        when pg_catalog.jsonb_typeof(document -> 'declared') <> 'object' then 'declared is not an object'
        when exists (
            select from pg_catalog.jsonb_object_keys(document -> 'declared') as k (key)
            where k.key not in (select f.field from eve.policy_field as f))
            then 'declared names a field that is none of the twenty-two'
        when exists (
            select from pg_catalog.jsonb_each(document -> 'declared') as k (key, value)
            where pg_catalog.jsonb_typeof(k.value) <> 'string' or pg_catalog.btrim(k.value #>> '{}') = '')
            then 'declared says something else than words'
        when pg_catalog.octet_length((document -> 'declared')::text) > 65536 then 'declared is larger than 64 KiB'
        when pg_catalog.jsonb_typeof(document -> 'schema') not in ('object', 'boolean')
            then 'schema is not a JSON Schema'
        when pg_catalog.octet_length((document -> 'schema')::text) > 1048576 then 'schema is larger than 1 MiB'
    end;
    if fault is null and document ? 'schema' then
        fault := eve._schema_verdict(document -> 'schema');
    end if;
    if fault is not null then
        perform eve._raise('22023', pg_catalog.format('policy refused: %s', fault),
            pg_catalog.jsonb_build_object('fault', fault),
            'Correct the field in the policy document.');
    end if;
    select
        null, c.attempts, c.ttl_floor, c.ttl, c.ttl_ceiling, c.max_age, 'report', true, false, false,
        'immediate', '10 s', 2::float8, '1 h', 0.2::float8, 1048576, 1048576, '30 days', 8, 1000, '0 s', 'queue',
        false, null, null, 'none', null, '2 min', '5 min', null, 'strict', null, null, null, null, null, 'hold',
        null, null, null, null, 'none', false, null, null, null, null, null
    into policy
    from eve.contract as c;
    begin
        policy := pg_catalog.jsonb_populate_record(policy, (answers || document) - '{schema,declared}'::text[]);
        perform (policy.protection ->> 'retention')::interval;
        policy.schema_digest := eve._schema_digest(document -> 'schema');
    exception when data_exception or invalid_text_representation or array_subscript_error then
        perform eve._raise('22023', 'a policy field has a value of another type or out of range',
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
        when eve._short_names(policy.pools, 1000) is false then 'pools is not a list of short names'
        when policy.engine_verifies is null or policy.verifier_not_holder is null
            or policy.effect_starts is null or policy.own_lane is null
            or policy.effect_unique is null then 'a yes-or-no field is null'
        when (policy.evidence in ('none', 'limit', 'required')) is not true
            then 'evidence is not none, limit or required'
        when policy.evidence = 'limit' and policy.evidence_limit is null
            then 'evidence limit states no evidence_limit'
        when (policy.evidence_limit between 0 and 1000000000) is false
            then 'evidence_limit is not between 0 and 1000000000'
        when not pg_catalog.isfinite(policy.freshness)
            or (policy.freshness between interval '1 s' and interval '7 days') is not true
            then 'freshness is not between one second and 7 days'
        when not pg_catalog.isfinite(policy.measure_window)
            or (policy.measure_window between interval '1 s' and interval '7 days') is not true
            then 'measure_window is not between one second and 7 days'
        when eve._short_names(policy.dependencies, 16) is false
            then 'dependencies is not a list of at most 16 short names'
        when eve._short_names(policy.submitters, 1000) is false then 'submitters is not a list of short names'
        when eve._short_names(policy.evidence_kinds, 64) is false then 'evidence_kinds is not a list of short names'
        when (policy.budget_mode in ('strict', 'striped')) is not true then 'budget_mode is not strict or striped'
        when least(policy.item_limit, policy.byte_limit, policy.shared_item_limit, policy.shared_byte_limit) < 0
            then 'a budget is negative'
        when (policy.age_limit between interval '1 s' and interval '1000 years') is false
            then 'age_limit is not between one second and 1000 years'
        when (policy.age_action in ('hold', 'reject')) is not true then 'age_action is not hold or reject'
        when (policy.value_window between interval '0' and interval '1000 years') is false
            then 'value_window is not between 0 and 1000 years'
        when (policy.life between interval '0' and interval '1000 years') is false
            then 'life is not between 0 and 1000 years'
        when (policy.wait_hint between interval '0' and interval '30 days') is false
            then 'wait_hint is not between 0 and 30 days'
        when (policy.coalesce in ('none', 'replace', 'absorb')) is not true
            then 'coalesce is not none, replace or absorb'
        when (policy.limit_per_key between 1 and 1024) is false then 'limit_per_key is not between 1 and 1024'
        when (policy.spend_limit >= 0 and policy.spend_limit < 'infinity') is false
            or (policy.spend_tree_limit >= 0 and policy.spend_tree_limit < 'infinity') is false
            then 'a spend limit is negative or infinite'
        when policy.replay_class = 'destination_protected'
            and (pg_catalog.jsonb_typeof(policy.protection) = 'object'
                and policy.protection ?& array['scope', 'retention', 'canonical_inputs',
                    'conflict_behaviour', 'authority', 'after_retention']) is not true
            then 'protection does not state scope, retention, canonical_inputs, conflict_behaviour,'
                ' authority and after_retention'
        when policy.protection ? 'observations' and (
            pg_catalog.jsonb_typeof(policy.protection -> 'authority') = 'string'
            and pg_catalog.jsonb_typeof(policy.protection -> 'observations') = 'array'
            and policy.protection -> 'observations' <> '[]') is not true
            then 'protection states observations but not the authority to ask, or no list of them'
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

create function eve._short_names(names text[], most integer)
returns boolean
language plpgsql
immutable
as $$
begin
    return names is null or (pg_catalog.array_ndims(names) = 1 and pg_catalog.cardinality(names) <= most) is true
        and not exists (select from pg_catalog.unnest(names) as n (name)
            where (pg_catalog.octet_length(n.name) between 1 and 200) is not true or n.name ~ '[[:cntrl:]]');
end
$$;

comment on function eve._short_names(text[], integer) is
'Whether a list is flat, not empty, no longer than allowed, and of texts of 1 to 200 bytes without control characters.';

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
    policy.effect_unique := admitted.effect_unique or current.effect_unique;
    -- Without a recorded start a loss is uncertain: who does not declare starts is the stricter.
    policy.effect_starts := admitted.effect_starts and current.effect_starts;
    policy.payload_limit := least(admitted.payload_limit, current.payload_limit);
    policy.result_limit := least(admitted.result_limit, current.result_limit);
    policy.limit_per_key := least(admitted.limit_per_key, current.limit_per_key);
    policy.spend_limit := least(admitted.spend_limit, current.spend_limit);
    policy.spend_tree_limit := least(admitted.spend_tree_limit, current.spend_tree_limit);
    policy.evidence_kinds := (
        select pg_catalog.array_agg(distinct e.kind order by e.kind)
        from pg_catalog.unnest(admitted.evidence_kinds || current.evidence_kinds) as e (kind));
    policy.dependencies := (
        select pg_catalog.array_agg(distinct e.name order by e.name)
        from pg_catalog.unnest(admitted.dependencies || current.dependencies) as e (name));
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
