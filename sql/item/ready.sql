-- item/ready.sql · the queue order: a row while an item is ready, and the marks that keep its head from rotting.
begin;

create table eve.ready (
    queue_id bigint not null,
    lane smallint not null,
    rank smallint not null,
    late boolean not null,
    ready_since timestamptz not null,
    item bigint not null,
    class_id integer not null,
    constraint ready_pkey primary key (queue_id, lane, rank, late, ready_since, item)
);

create index ready_class on eve.ready (queue_id, class_id, rank, late, ready_since, item);

comment on table eve.ready is
'The ready items in queue order: inserted when eligible, deleted when leased. Rows that became ready with an older ready_since lie under late and never below a mark.';

create table eve.mark (
    queue_id bigint not null,
    lane integer not null,
    rank smallint not null,
    since timestamptz not null,
    xid xid8 not null default pg_current_xact_id(),
    constraint mark_pkey primary key (queue_id, lane, rank, since, xid)
);

comment on table eve.mark is
'Insert-only, read highest first: no row that is not late, of that lane and rank, will ever again be older. Negative lanes are classes, for callers who may not run all classes of a lane. Lane 0 holds the marks of time triggers (1), deadlines (2), first (3) and second (4) looks. The transaction id is in the key so that nobody waits for the same mark of another.';

create table eve.probe (
    queue_id bigint not null,
    xid xid8 not null,
    at timestamptz not null,
    seq bigint not null,
    constraint probe_pkey primary key (queue_id, xid)
);

comment on table eve.probe is
'Insert-only pairs of a transaction id and a clock reading before it: once every older transaction has ended, no row older than the reading can appear. The row itself is written in a subtransaction after the sequence of free slots was read: once that one''s elders have ended, no slot with a lower number can appear.';

create function eve._advance(queue_id bigint, lane smallint, rank smallint)
returns void
language plpgsql
as $$
begin
    -- One statement, one snapshot: the newest settled probe and the visible head are judged together. No head is
    -- sought beyond the probe, for a mark goes no further.
    insert into eve.mark (queue_id, lane, rank, since)
    select _advance.queue_id, _advance.lane, _advance.rank, n.since
    from (
        select b.at from eve.probe as b
        where b.queue_id = _advance.queue_id
            and b.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
        order by b.xid desc limit 1
    ) as p
    cross join lateral (
        select coalesce((
            select m.since from eve.mark as m
            where m.queue_id = _advance.queue_id and m.lane = _advance.lane and m.rank = _advance.rank
            order by m.since desc limit 1), '-infinity') as was
    ) as o
    cross join lateral (
        select coalesce((
            select r.ready_since from eve.ready as r
            where r.queue_id = _advance.queue_id and r.lane = _advance.lane and r.rank = _advance.rank
                and not r.late and r.ready_since >= o.was and r.ready_since < p.at
            order by r.ready_since limit 1), p.at) as since
    ) as n
    where n.since > o.was
    on conflict on constraint mark_pkey do nothing;
end
$$;

comment on function eve._advance(bigint, smallint, smallint) is
'Move the mark of a lane and rank up to the visible head, as far as the newest settled probe allows.';

create function eve._advance_class(queue_id bigint, class_id integer, rank smallint)
returns void
language plpgsql
as $$
begin
    -- As eve._advance, with the head of one class.
    insert into eve.mark (queue_id, lane, rank, since)
    select _advance_class.queue_id, -_advance_class.class_id, _advance_class.rank, n.since
    from (
        select b.at from eve.probe as b
        where b.queue_id = _advance_class.queue_id
            and b.xid < pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())
        order by b.xid desc limit 1
    ) as p
    cross join lateral (
        select coalesce((
            select m.since from eve.mark as m
            where m.queue_id = _advance_class.queue_id and m.lane = -_advance_class.class_id
                and m.rank = _advance_class.rank
            order by m.since desc limit 1), '-infinity') as was
    ) as o
    cross join lateral (
        select coalesce((
            select r.ready_since from eve.ready as r
            where r.queue_id = _advance_class.queue_id and r.class_id = _advance_class.class_id
                and r.rank = _advance_class.rank and not r.late
                and r.ready_since >= o.was and r.ready_since < p.at
            order by r.ready_since limit 1), p.at) as since
    ) as n
    where n.since > o.was
    on conflict on constraint mark_pkey do nothing;
end
$$;

comment on function eve._advance_class(bigint, integer, smallint) is
'Move the mark of a class and rank, which may be far beyond that of its lane where others of the lane wait.';

create function eve._advance_slots(queue_id bigint, pool text)
returns void
language plpgsql
as $$
begin
    insert into eve.slot_mark (queue_id, pool, exact, seq)
    select _advance_slots.queue_id, _advance_slots.pool, true, n.seq
    from (
        select b.seq from eve.probe as b
        where b.queue_id = _advance_slots.queue_id and eve._settled(b.xmin)
        order by b.xid desc limit 1
    ) as p
    cross join lateral (
        select coalesce((
            select m.seq from eve.slot_mark as m
            where m.queue_id = _advance_slots.queue_id and m.pool = _advance_slots.pool and m.exact
            order by m.seq desc limit 1), 0) as was
    ) as o
    cross join lateral (
        select coalesce((
            select f.seq from eve.free_slot as f
            where f.queue_id = _advance_slots.queue_id and f.pool = _advance_slots.pool
                and f.seq >= o.was and f.seq < p.seq
            order by f.seq limit 1), p.seq) as seq
    ) as n
    where n.seq > o.was
    on conflict on constraint slot_mark_pkey do nothing;
end
$$;

comment on function eve._advance_slots(bigint, text) is
'Move the exact mark of a pool''s free slots up to the first visible one, as far as the newest settled probe allows.';

create function eve._probe(queue_id bigint)
returns void
language plpgsql
as $$
declare
    -- Tests own eve.now(): the probe takes the earlier of both clocks, read before the transaction id. Where
    -- the clock stepped back it repeats the newest probe: who reads the clock later reads that one as well.
    -- Never one with a later id: between the two ids others may have begun, at an earlier time.
    seen timestamptz := greatest(
        least(pg_catalog.now(), eve.now()),
        (select p.at from eve.probe as p
            where p.queue_id = _probe.queue_id and p.xid < pg_catalog.pg_current_xact_id()
            order by p.xid desc limit 1));
    drawn bigint := (select s.last_value from eve.free_slot_seq as s);
begin
    begin
        insert into eve.probe (queue_id, xid, at, seq)
        values (_probe.queue_id, pg_catalog.pg_current_xact_id(), seen, drawn);
    exception when unique_violation then
        null;
    end;
end
$$;

comment on function eve._probe(bigint) is
'Record a clock reading that precedes every row which a later transaction can make ready, and the place of the slot sequence.';

commit;
