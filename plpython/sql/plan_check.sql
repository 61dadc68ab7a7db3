-- plan_check.sql · eve_plan_check: a plan before it is submitted. Reads only. Raises: P0002, 42501, 22004, 22023.
begin;

create type eve.plan_answer as (
    ok boolean,
    items integer,
    depth integer,
    waves integer,
    critical_path text[],
    seconds float8,
    cycle text[],
    unknown jsonb,
    duplicates text[],
    detail jsonb
);

comment on type eve.plan_answer is
'Answer of eve_plan_check: ok means no unknown name, no duplicate id and no cycle. depth is the items of the longest chain, waves the rounds in which the plan can run, critical_path the ids of the slowest chain and seconds its length (an item without seconds counts 1): null where there is a cycle. cycle: ids, each waits for the one before, the first comes last once more; null when there is none. unknown: name to the ids that name it. detail: unit of the length (seconds, items, mixed), widths of the waves, known names and taken ids that are items of the queue already.';

alter type eve.plan_answer owner to eve_owner;
revoke all on type eve.plan_answer from public;
grant usage on type eve.plan_answer to
    eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor;

create function public.eve_plan_check(queue text, plan jsonb)
returns eve.plan_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller := eve._look(eve_plan_check.queue, eve._everyone());
    names text[];
    ids text[];
    known text[];
    taken text[];
    found jsonb;
    answer eve.plan_answer;
begin
    if plan is null then
        perform eve._raise('22004', 'plan is null', jsonb_build_object('argument', 'plan'), 'Pass a plan.');
    end if;
    select array_agg(distinct n.name #>> '{}') into names
    from jsonb_path_query(plan, 'lax $[*].after[*]') as n (name);
    select array_agg(distinct n.name #>> '{}') into ids
    from jsonb_path_query(plan, 'lax $[*].id') as n (name);
    select coalesce(array_agg(i.work_id order by i.work_id), '{}') into known
    from eve.intent as i where i.queue_id = c.queue_id and i.work_id = any (names);
    select coalesce(array_agg(i.work_id order by i.work_id), '{}') into taken
    from eve.intent as i where i.queue_id = c.queue_id and i.work_id = any (ids);

    found := eve._plan_faults(plan, known);
    if found ? 'malformed' then
        perform eve._raise('22023', found ->> 'malformed', jsonb_build_object('argument', 'plan'),
            'Pass an array of objects: id, a text; if need be after, an array of ids, and seconds, a number.');
    end if;

    answer.items := (found ->> 'items')::integer;
    answer.depth := (found ->> 'depth')::integer;
    answer.waves := (found ->> 'waves')::integer;
    answer.seconds := (found ->> 'seconds')::float8;
    select array_agg(e.id order by e.ordinality) into answer.cycle
    from jsonb_array_elements_text(nullif(found -> 'cycle', 'null')) with ordinality as e (id, ordinality);
    answer.unknown := found -> 'unknown';
    select coalesce(array_agg(e.id order by e.ordinality), '{}') into answer.duplicates
    from jsonb_array_elements_text(found -> 'duplicates') with ordinality as e (id, ordinality);
    if answer.cycle is null then
        select coalesce(array_agg(e.id order by e.ordinality), '{}') into answer.critical_path
        from jsonb_array_elements_text(found -> 'critical_path') with ordinality as e (id, ordinality);
    end if;
    answer.ok := answer.unknown = '{}' and answer.duplicates = '{}' and answer.cycle is null;
    answer.detail := jsonb_build_object(
        'unit', found -> 'unit', 'widths', found -> 'widths', 'known', known, 'taken', taken);
    return answer;
end
$$;

comment on function public.eve_plan_check(text, jsonb) is
'Check a plan against the queue before it is submitted: an array of {id, after, seconds}, the last two optional, seconds a number from 0; names of after may be ids of the plan or work_ids of the queue. Nothing is stored and nothing reserved. Refuses what is no plan, an unknown field, more than 10000 items or 100000 names (22023), a null (22004), and as every read a queue unknown or forbidden (P0002).';

alter function public.eve_plan_check(text, jsonb) owner to eve_owner;
revoke all on function public.eve_plan_check(text, jsonb) from public;
grant execute on function public.eve_plan_check(text, jsonb) to
    eve_producer, eve_worker, eve_verifier, eve_operator, eve_human, eve_auditor;

commit;
