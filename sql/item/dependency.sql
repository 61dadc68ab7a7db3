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
language sql
stable
begin atomic
    -- The items that the item leads to and that lead back to it, over open edges; at most 100,000 steps each way.
    with recursive onward (item) as (
        select d.on_item
        from eve.dependency as d
        where d.queue_id = _cycle.queue_id and d.item = _cycle.item and d.open and d.on_item is not null
        union
        select d.on_item
        from onward as o
        join eve.dependency as d
            on d.queue_id = _cycle.queue_id and d.item = o.item and d.open and d.on_item is not null
    ), reached (item) as (
        select o.item from onward as o limit 100000
    ), back (item) as (
        select _cycle.item
        where exists (select from reached as r where r.item = _cycle.item)
        union
        select d.item
        from back as b
        join eve.dependency as d on d.queue_id = _cycle.queue_id and d.on_item = b.item and d.open
    ), members (item) as (
        select r.item from reached as r
        where r.item in (select b.item from back as b limit 100000)
    )
    select pg_catalog.array_agg(i.work_id order by i.item)
    from members as m
    join eve.intent as i on i.queue_id = _cycle.queue_id and i.item = m.item;
end;

comment on function eve._cycle(bigint, bigint) is
'The work_ids that form a cycle with an item over open edges, or null: a bounded walk, never trusted from storage.';

commit;
