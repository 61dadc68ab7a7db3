-- api/read.sql · one item, its history, its counts. Reads only.
begin;

create function eve._find_item(c eve.caller, item bigint, work_id text)
returns bigint
language plpgsql
stable
as $$
declare
    target bigint;
    whose text;
begin
    if pg_catalog.num_nonnulls(item, work_id) <> 1 then
        perform eve._raise('22023', 'not exactly one of item and work_id is given', null, 'Name one item.');
    end if;
    select i.item, i.principal into target, whose
    from eve.intent as i
    where i.queue_id = c.queue_id and (i.item = _find_item.item or i.work_id = _find_item.work_id);
    if target is null or (whose <> c.principal and not (
        eve._has(c, 'worker') or eve._has(c, 'verifier') or eve._has(c, 'operator')
        or eve._has(c, 'human') or eve._has(c, 'auditor'))) then
        perform eve._raise('P0002', pg_catalog.format('unknown item %s',
            coalesce(item::text, pg_catalog.quote_literal(pg_catalog.left(work_id, 200)))),
            null, 'Items are numbered by eve_submit; a producer reads its own.');
    end if;
    return target;
end
$$;

comment on function eve._find_item(eve.caller, bigint, text) is
'Resolve an item for a reader: a producer sees its own, the others all. Unknown and foreign answer alike: P0002.';

create function public.eve_item(queue text, item bigint default null, work_id text default null)
returns eve.item_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller := eve._look(eve_item.queue, eve._everyone());
    target bigint := eve._find_item(c, eve_item.item, eve_item.work_id);
    answer eve.item_answer;
begin
    select
        v.item, v.work_id, v.class, v.status, v.phase, (v.queue_state).version,
        (v.queue_state).attempts,
        greatest(0, eve._budget(eve._policy(c.queue_id, i.class_id, (v.queue_state).revision), v.queue_state)
            - (v.queue_state).attempts),
        (v.queue_state).token, (v.queue_state).principal, (v.queue_state).worker,
        (v.queue_state).expires_at, (v.queue_state).rank, (v.queue_state).ready_since,
        (v.queue_state).reason,
        case when v.phase = 'held' then eve._holds(c.queue_id, target) end,
        (select jsonb_agg(eve._strip(jsonb_build_object('work_id', d.on_work_id, 'item', d.on_item,
            'needs', d.needs, 'open', d.open, 'waiver', d.waiver)) order by d.on_work_id)
            from eve.dependency as d where d.queue_id = c.queue_id and d.item = target),
        i.payload,
        (select r.result from eve.result as r where r.queue_id = c.queue_id and r.item = target
            order by r.version desc limit 1),
        (select l.data -> 'progress' from eve.ledger as l
            where l.queue_id = c.queue_id and l.item = target and l.data ? 'progress'
            order by l.version desc limit 1),
        (select l.data -> 'checkpoint' from eve.ledger as l
            where l.queue_id = c.queue_id and l.item = target and l.data ? 'checkpoint'
            order by l.version desc limit 1),
        eve._strip(to_jsonb(i) - array['payload', 'queue_id', 'lane', 'class_id', 'coalesces']
            || jsonb_build_object('represents', eve._represented(c.queue_id, target))),
        (v.queue_state).at,
        case when v.phase in ('completed', 'verified') then (
            select l.data -> 'record' || jsonb_build_object('at', l.at) from eve.ledger as l
            where l.queue_id = c.queue_id and l.item = target and l.data ? 'record'
            order by l.version desc limit 1) end,
        eve._spent(c.queue_id, target)
    into answer
    from eve.item_status as v
    join eve.intent as i on i.queue_id = v.queue_id and i.item = v.item
    where v.queue_id = c.queue_id and v.item = target;
    return answer;
end
$$;

comment on function public.eve_item(text, bigint, text) is
'The present state of one item, by number or work_id. A producer reads its own items. Refuses unknown and foreign ones alike (P0002).';

create function public.eve_history(queue text, item bigint default null, work_id text default null)
returns setof eve.event_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    target bigint := eve_history.item;
begin
    c := eve._look(eve_history.queue, '{verifier,operator,human,auditor}');
    if num_nonnulls(eve_history.item, eve_history.work_id) <> 1 then
        perform eve._raise('22023', 'not exactly one of item and work_id is given', null,
            'Name one item; item 0 is the queue itself.');
    end if;
    if target is null then
        select i.item into target from eve.intent as i
        where i.queue_id = c.queue_id and i.work_id = eve_history.work_id;
    end if;
    return query
        select l.version, l.kind, l.phase, l.at, l.actor, l.principal, l.worker, l.epoch, l.revision,
            l.token, l.pool, l.slot, l.due_at, l.rank, l.attempts, l.reason, l.data, l.hash
        from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = target
        order by l.version;
    if not found then
        perform eve._raise('P0002', format('unknown item %s', coalesce(eve_history.item::text,
            quote_literal(left(eve_history.work_id, 200)))), null, 'Items are numbered by eve_submit.');
    end if;
end
$$;

comment on function public.eve_history(text, bigint, text) is
'All events of one item in order, or with item 0 those of the queue. Refuses an unknown item (P0002).';

create function public.eve_stats(queue text)
returns setof eve.stats_answer
language plpgsql
stable
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
begin
    c := eve._look(queue, '{verifier,operator,human,auditor}');
    return query
        select v.class, v.status, v.phase, count(*), min((v.queue_state).at)
        from eve.item_status as v
        where v.queue_id = c.queue_id
        group by v.class, v.status, v.phase
        order by v.class, v.status, v.phase;
end
$$;

comment on function public.eve_stats(text) is
'How many items of each class are in which status and phase, and since when the oldest has been there.';

commit;
