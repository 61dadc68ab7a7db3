-- item/dependency.sql · declared edges, fixed at submit, by work_id inside the queue.
begin;

create table eve.dependency (
    queue_id bigint not null,
    item bigint not null,
    on_work_id text not null,
    on_item bigint,
    needs text not null,
    open boolean not null,
    waiver bigint,
    constraint dependency_pkey primary key (queue_id, item, on_work_id),
    constraint dependency_needs_is_known check (needs in ('verified', 'ended'))
);

create index dependency_on_item on eve.dependency (queue_id, on_item) where open;
create index dependency_on_work_id on eve.dependency (queue_id, on_work_id) where open and on_item is null;

comment on table eve.dependency is
'The edges of an item. Open until the named item is verified (or, where the edge says so, ended) or a human accepted a waiver; on_item is null while the work_id is unknown.';

create function eve._cycle(queue_id bigint, item bigint)
returns text[]
language plpgsql
stable
as $$
declare
    seen bigint[] := '{}';
    frontier bigint[] := array[item];
    back bigint[];
begin
    -- Breadth first over open edges, each item once, 100,000 items at most; then back inside what was seen.
    while frontier <> '{}' and pg_catalog.cardinality(seen) < 100000 loop
        frontier := array(
            select distinct d.on_item
            from pg_catalog.unnest(frontier) as f (item)
            cross join lateral (
                select e.on_item from eve.dependency as e
                where e.queue_id = _cycle.queue_id and e.item = f.item and e.open and e.on_item is not null
                offset 0
            ) as d
            where d.on_item <> all (seen));
        seen := seen || frontier;
    end loop;
    if item <> all (seen) then
        return null;
    end if;
    back := array[item];
    frontier := back;
    while frontier <> '{}' loop
        frontier := array(
            select distinct d.item
            from pg_catalog.unnest(frontier) as f (item)
            cross join lateral (
                select e.item from eve.dependency as e
                where e.queue_id = _cycle.queue_id and e.on_item = f.item and e.open
                offset 0
            ) as d
            where d.item = any (seen) and d.item <> all (back));
        back := back || frontier;
    end loop;
    return array(
        select i.work_id from eve.intent as i
        where i.queue_id = _cycle.queue_id and i.item = any (back)
        order by i.item);
end
$$;

comment on function eve._cycle(bigint, bigint) is
'The work_ids that form a cycle with an item over open edges, or null: a bounded walk, never trusted from storage.';

commit;
