-- capacity/tally.sql · how many items of a class are where: inserted once a step, summed, never updated in place.
begin;

create table eve.tally (
    queue_id bigint not null,
    class_id integer not null,
    tx xid8 not null,
    item bigint not null,
    version integer not null,
    was text,
    phase text not null,
    size integer not null,
    constraint tally_pkey primary key (queue_id, class_id, tx, item, version)
);

comment on table eve.tally is
'One row for each step that changed an item''s phase, since the last total of its class: written by the fold, dropped once a total includes it. A search structure: eve_rebuild recreates the sums.';

create sequence eve.total_seq as bigint;

comment on sequence eve.total_seq is 'Orders the totals of a class.';

create table eve.total (
    queue_id bigint not null,
    class_id integer not null,
    seq bigint not null default nextval('eve.total_seq'),
    tx xid8 not null,
    started timestamptz not null default pg_postmaster_start_time(),
    at timestamptz not null,
    held bigint not null,
    ready bigint not null,
    leased bigint not null,
    uncertain bigint not null,
    reported bigint not null,
    completed bigint not null,
    quarantined bigint not null,
    queued_bytes bigint not null,
    live_bytes bigint not null,
    arrivals bigint not null,
    completions bigint not null,
    constraint total_pkey primary key (queue_id, class_id, seq)
);

comment on table eve.total is
'The sums of a class up to (not including) a transaction id below which every transaction had ended: insert-only, read highest first. Counts are items by phase, queued_bytes those held or ready, live_bytes those neither ended nor verified; arrivals and completions only grow, so that two totals give the rates between them. Under the postmaster that started then, no tally below tx can appear any more: sums begin there. Under any other they begin at the first tally, because a restored cluster counts transactions anew.';

create function eve._live(phase text)
returns boolean
language sql
immutable
return _live.phase in ('held', 'ready', 'leased', 'uncertain', 'reported', 'completed', 'quarantined');

comment on function eve._live(text) is
'Whether a phase counts against the budgets of a class: stored, and neither verified nor ended.';

create function eve._total(queue_id bigint, class_id integer, at timestamptz, settled boolean)
returns eve.total
language plpgsql
stable
as $$
declare
    total eve.total;
begin
    -- The newest sum, and what happened since: one statement, one snapshot.
    select
        _total.queue_id, _total.class_id, null,
        pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()), pg_catalog.pg_postmaster_start_time(),
        _total.at,
        coalesce(b.held, 0) + s.held, coalesce(b.ready, 0) + s.ready, coalesce(b.leased, 0) + s.leased,
        coalesce(b.uncertain, 0) + s.uncertain, coalesce(b.reported, 0) + s.reported,
        coalesce(b.completed, 0) + s.completed, coalesce(b.quarantined, 0) + s.quarantined,
        coalesce(b.queued_bytes, 0) + s.queued_bytes, coalesce(b.live_bytes, 0) + s.live_bytes,
        coalesce(b.arrivals, 0) + s.arrivals, coalesce(b.completions, 0) + s.completions
    into total
    from (select 1) as one
    left join lateral (
        select x.* from eve.total as x
        where x.queue_id = _total.queue_id and x.class_id = _total.class_id
        order by x.seq desc limit 1
    ) as b on true
    cross join lateral (
        select
            pg_catalog.count(*) filter (where t.phase = 'held')
                - pg_catalog.count(*) filter (where t.was = 'held') as held,
            pg_catalog.count(*) filter (where t.phase = 'ready')
                - pg_catalog.count(*) filter (where t.was = 'ready') as ready,
            pg_catalog.count(*) filter (where t.phase = 'leased')
                - pg_catalog.count(*) filter (where t.was = 'leased') as leased,
            pg_catalog.count(*) filter (where t.phase = 'uncertain')
                - pg_catalog.count(*) filter (where t.was = 'uncertain') as uncertain,
            pg_catalog.count(*) filter (where t.phase = 'reported')
                - pg_catalog.count(*) filter (where t.was = 'reported') as reported,
            pg_catalog.count(*) filter (where t.phase = 'completed')
                - pg_catalog.count(*) filter (where t.was = 'completed') as completed,
            pg_catalog.count(*) filter (where t.phase = 'quarantined')
                - pg_catalog.count(*) filter (where t.was = 'quarantined') as quarantined,
            coalesce(pg_catalog.sum(t.size) filter (where t.phase in ('held', 'ready')), 0)
                - coalesce(pg_catalog.sum(t.size) filter (where t.was in ('held', 'ready')), 0) as queued_bytes,
            coalesce(pg_catalog.sum(t.size) filter (where t.was is null and eve._live(t.phase)), 0)
                - coalesce(pg_catalog.sum(t.size)
                    filter (where eve._live(t.was) and not eve._live(t.phase)), 0) as live_bytes,
            pg_catalog.count(*) filter (where t.was is null and t.phase in ('held', 'ready')) as arrivals,
            pg_catalog.count(*) filter (where t.phase in ('completed', 'verified')
                and t.was in ('leased', 'reported', 'uncertain')) as completions
        from eve.tally as t
        where t.queue_id = _total.queue_id and t.class_id = _total.class_id
            and t.tx >= case when b.started = pg_catalog.pg_postmaster_start_time() then b.tx
                else '0'::xid8 end
            and (not settled or t.tx < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()))
    ) as s;
    return total;
end
$$;

comment on function eve._total(bigint, integer, timestamptz, boolean) is
'The sums of a class as this statement sees them: what is committed and the caller''s own, or only what was settled before every open transaction.';

create function eve._stored(total eve.total)
returns bigint
language sql
immutable
return (total).held + (total).ready + (total).leased + (total).uncertain + (total).reported + (total).completed
    + (total).quarantined;

comment on function eve._stored(eve.total) is
'How many items of a class are stored and neither verified nor ended.';

create function eve._sum_up(queue_id bigint, at timestamptz)
returns void
language plpgsql
as $$
declare
    class record;
begin
    -- Called by whoever holds the keeper row. A total holds only what every later reader sees as ended.
    for class in
        select k.class_id, b.tx, b.at, b.seq, b.started
        from eve.work_class as k
        left join lateral (
            select x.tx, x.at, x.seq, x.started from eve.total as x
            where x.queue_id = k.queue_id and x.class_id = k.class_id
            order by x.seq desc limit 1
        ) as b on true
        where k.queue_id = _sum_up.queue_id
    loop
        continue when class.at > _sum_up.at - interval '5 s';
        -- One statement: what the total includes is dropped, whatever began meanwhile is neither.
        with sum as materialized (
            select x.* from eve._total(_sum_up.queue_id, class.class_id, _sum_up.at, true) as x
            where class.started is distinct from pg_catalog.pg_postmaster_start_time() or x.tx > class.tx
        ), included as (
            delete from eve.tally as t
            using sum as s
            where t.queue_id = s.queue_id and t.class_id = s.class_id and t.tx < s.tx
        )
        insert into eve.total (
            queue_id, class_id, tx, at, held, ready, leased, uncertain, reported, completed, quarantined,
            queued_bytes, live_bytes, arrivals, completions)
        select s.queue_id, s.class_id, s.tx, s.at, s.held, s.ready, s.leased, s.uncertain, s.reported,
            s.completed, s.quarantined, s.queued_bytes, s.live_bytes, s.arrivals, s.completions
        from sum as s;
        -- A window never reaches further back than a policy's measure_window, which is at most seven days.
        delete from eve.total as x
        where x.queue_id = _sum_up.queue_id and x.class_id = class.class_id
            and x.at < _sum_up.at - interval '8 days' and x.seq < class.seq;
    end loop;
end
$$;

comment on function eve._sum_up(bigint, timestamptz) is
'Write the settled sums of each class, at most every five seconds, and drop the tallies they include. For the keeper of the queue alone.';

commit;
