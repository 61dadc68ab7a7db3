-- api/checks.sql · what an item answers to each check, and the statement that its evidence supports. Reads only.
begin;

create type eve.statement_answer as (
    item bigint,
    submission bigint,
    statement text,
    slots jsonb,
    unavailable text[]
);

comment on type eve.statement_answer is
'Answer of eve_statement: the sentence, its slots by name, and those that nothing on record fills; an empty slot reads "unavailable", never zero.';

create function public.eve_checks(queue text, item bigint default null, work_id text default null)
returns setof eve.check_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller := eve._look(eve_checks.queue, eve._everyone());
    target bigint := eve._find_item(c, eve_checks.item, eve_checks.work_id);
begin
    return query select k.* from eve._checks_of(jsonb_strip_nulls(
        eve._facts_of(c, target, eve._clock(c)))) as k;
end
$$;

comment on function public.eve_checks(text, bigint, text) is
'What an item answers, from evidence on record, to five milestones, ten questions, nineteen evidence states and forty-nine checks: true, false, or null with what is unavailable. Refuses unknown and foreign items alike (P0002).';

create function eve._statement(slots jsonb)
returns text
language plpgsql
immutable
as $$
declare
    said jsonb := (
        select pg_catalog.jsonb_object_agg(s.key,
            case when s.value = 'null' then '"unavailable"'::jsonb else s.value end)
        from pg_catalog.jsonb_each(slots) as s);
begin
    return pg_catalog.format(
        'Under policy %s of class %s, with %s items and %s bytes in store, the oldest eligible for %s,'
        ' %s arrivals and %s completions in a window of %s, outside dependencies at %s and a deadline of %s:'
        ' %s; lease: %s, fence %s, %s; terminal record: %s.'
        ' This holds for the snapshot observed at %s and says nothing of what arrives after it.'
        ' It does not claim that every stored item runs, that durability makes a payload valid or authorised,'
        ' that the measured drain persists, that a lease alone prevents duplicate effects,'
        ' that a wait hint reserves capacity, or that one policy fits every workload.',
        said ->> 'policy', said ->> 'class', said ->> 'depth', said ->> 'bytes', said ->> 'oldest_age',
        said ->> 'arrivals', said ->> 'completions', said ->> 'window', said ->> 'dependency_capacity',
        said ->> 'deadline',
        case when slots ? 'rejected_intent' then 'rejected intent ' || (said ->> 'rejected_intent')
            else 'stored item ' || (said ->> 'stored_item') end,
        said ->> 'lease', said ->> 'fence',
        case when said ->> 'attempt' = 'unavailable' then 'attempt unavailable'
            else 'attempt ' || (said ->> 'attempt') end,
        said ->> 'terminal_record', said ->> 'observed_at');
end
$$;

comment on function eve._statement(jsonb) is
'The one sentence over its slots; what is null reads unavailable.';

create function public.eve_statement(
    queue text,
    item bigint default null,
    work_id text default null,
    submission bigint default null
)
returns eve.statement_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
set timezone to 'UTC'
set intervalstyle to postgres
as $$
declare
    c eve.caller := eve._look(eve_statement.queue, eve._everyone());
    answer eve.statement_answer;
    refused eve.submission;
    f jsonb;
    seen jsonb;
begin
    if eve_statement.submission is not null then
        if eve_statement.item is not null or eve_statement.work_id is not null then
            perform eve._raise('22023', 'item, work_id and submission are not one', '{"argument": "submission"}',
                'Name an item or a submission record.');
        end if;
        select x.* into refused from eve.submission as x
        where x.queue_id = c.queue_id and x.submission = eve_statement.submission and (
            x.principal = c.principal or eve._has(c, 'worker') or eve._has(c, 'verifier')
            or eve._has(c, 'operator') or eve._has(c, 'human') or eve._has(c, 'auditor'));
        if not found then
            perform eve._raise('P0002', format('unknown submission %s', eve_statement.submission), null,
                'Refused submissions are numbered by eve_submit.');
        end if;
        f := refused.evidence -> 'steps';
        answer.submission := refused.submission;
        seen := (
            select eve._snapshot_at(c.queue_id, k.class_id, r.policy, refused.at,
                f -> 5 ->> 'observed_at' is not null, f -> 8)
            from eve.work_class as k
            left join eve.class_revision as r
                on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = refused.revision
            where k.queue_id = c.queue_id and k.name = refused.class);
        answer.slots := seen || jsonb_build_object(
            'policy', refused.revision, 'class', refused.class, 'deadline', f -> 2 -> 'deadline',
            'rejected_intent', coalesce(refused.work_id, f -> 0 ->> 'effect', 'record ' || refused.submission),
            'lease', null, 'fence', null, 'attempt', null,
            'terminal_record', refused.decision || ' ' || refused.reason || ' at ' || refused.at);
    else
        answer.item := eve._find_item(c, eve_statement.item, eve_statement.work_id);
        f := eve._facts_of(c, answer.item, eve._clock(c));
        answer.slots := (f -> 'snapshot') || jsonb_build_object(
            'policy', f -> 'admitted_revision', 'class', f -> 'class', 'deadline', f -> 'deadline',
            'stored_item', f -> 'item',
            'lease', f -> 'lease', 'fence', f -> 'token', 'attempt', nullif(f -> 'attempts', '0'),
            'terminal_record', (f #>> '{end,phase}') || ' by ' || (f #>> '{end,by}') || ' at ' || (f #>> '{end,at}'));
    end if;
    answer.unavailable := array(
        select s.key from jsonb_each(answer.slots) as s where s.value = 'null' order by s.key);
    answer.statement := eve._statement(answer.slots);
    return answer;
end
$$;

comment on function public.eve_statement(text, bigint, text, bigint) is
'The sentence that the evidence on record supports, for an item or a refused submission: the policy and class that decided, what they had before them then (depth, bytes, age, rates, window, dependencies), deadline, lease, fence, attempt and terminal record; what is not on record reads unavailable, never zero. Refuses what is unknown or foreign (P0002).';

commit;
