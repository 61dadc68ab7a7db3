-- admit/edges.sql · store the declared edges of an item: known ones resolved, verified ones closed, unknown ones kept.
begin;

create function eve._store_edges(c eve.caller, item bigint, work_id text, after text[], needs text)
returns integer
language plpgsql
as $$
declare
    stored integer;
begin
    insert into eve.dependency (queue_id, item, on_work_id, on_item, needs, open)
    select
        c.queue_id, _store_edges.item, d.work_id, i.item, _store_edges.needs,
        not coalesce(
            (w.queue_state).phase = 'verified'
            or _store_edges.needs = 'ended' and (w.queue_state).phase in
                ('rejected', 'expired', 'cancelled', 'coalesced', 'dead'), false)
    from (select distinct u.work_id from pg_catalog.unnest(after) as u (work_id)) as d
    left join eve.intent as i on i.queue_id = c.queue_id and i.work_id = d.work_id
    left join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
    order by d.work_id;
    get diagnostics stored = row_count;
    return stored;
end
$$;

comment on function eve._store_edges(eve.caller, bigint, text, text[], text) is
'Insert the edges of an item; an edge whose work_id is unknown stays open with on_item null.';

create function eve._name_known(c eve.caller, item bigint, work_id text, at timestamptz)
returns integer
language plpgsql
as $$
declare
    child bigint;
    woken integer := 0;
begin
    for child in
        select d.item from eve.dependency as d
        where d.queue_id = c.queue_id and d.on_work_id = _name_known.work_id and d.open and d.on_item is null
        order by d.item
    loop
        woken := woken + 1;
        -- The child's door first. An item that waits for itself has none yet.
        if eve._lock_holds(c, child, true) then
            perform eve._rederive(c, child, at, 'dependency_known');
        else
            update eve.dependency as d set on_item = _name_known.item
            where d.queue_id = c.queue_id and d.item = child and d.on_work_id = _name_known.work_id;
        end if;
    end loop;
    return woken;
end
$$;

comment on function eve._name_known(eve.caller, bigint, text, timestamptz) is
'Resolve the edges that waited for this work_id to exist.';

commit;
