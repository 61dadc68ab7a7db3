-- acquire/pick.sql · choose the next item: the best visible head, exactly that row, skipping what others hold.
begin;

create type eve.picked as (
    item bigint,
    class_id integer,
    lane smallint,
    rank smallint,
    late boolean,
    ready_since timestamptz,
    slot integer
);

comment on type eve.picked is
'A ready row that the caller has locked or taken, and the slot for it (null: there was none).';

create function eve._effective_rank(
    rank smallint,
    ready_since timestamptz,
    aging_interval interval,
    at timestamptz
)
returns integer
language sql
immutable
return greatest(0, _effective_rank.rank - floor(
    extract(epoch from (_effective_rank.at - _effective_rank.ready_since))
    / extract(epoch from _effective_rank.aging_interval))::integer);

comment on function eve._effective_rank(smallint, timestamptz, interval, timestamptz) is
'Rank aged by one class for each whole aging interval waited, never below 0.';

create function eve._pick(
    c eve.caller,
    streams integer[],
    by_class boolean,
    at timestamptz,
    pool text,
    slot integer,
    take boolean
)
returns eve.picked
language plpgsql
as $$
declare
    picked eve.picked;
    best record;
    -- A stream is a lane, or a class where only some may run; each has 4 ranks, fresh and late: 8 places.
    cursor_since timestamptz[];
    cursor_item bigint[];
    place integer;
begin
    loop
        -- Within a rank the oldest is the best, so only heads are compared.
        if by_class then
            select h.*, n.place into best
            from pg_catalog.generate_series(0, 8 * pg_catalog.cardinality(streams) - 1) as n (place)
            cross join lateral (
                select
                    streams[n.place / 8 + 1] as class_id,
                    (n.place / 2 % 4)::smallint as rank,
                    n.place % 2 = 1 as late
            ) as s
            cross join lateral (
                select k.lane from eve.work_class as k
                where k.queue_id = c.queue_id and k.class_id = s.class_id
            ) as k
            cross join lateral (
                select r.item, r.class_id, r.lane, r.rank, r.late, r.ready_since
                from eve.ready as r
                where r.queue_id = c.queue_id and r.class_id = s.class_id and r.rank = s.rank
                    and r.late = s.late
                    and (r.ready_since, r.item) > (
                        coalesce(cursor_since[n.place + 1], case when s.late then null else greatest(
                            (select m.since from eve.mark as m
                            where m.queue_id = c.queue_id and m.lane = k.lane and m.rank = s.rank
                            order by m.since desc limit 1),
                            (select m.since from eve.mark as m
                            where m.queue_id = c.queue_id and m.lane = -s.class_id and m.rank = s.rank
                            order by m.since desc limit 1)) end, '-infinity'),
                        coalesce(cursor_item[n.place + 1], 0))
                order by r.ready_since, r.item limit 1
            ) as h
            order by
                eve._effective_rank(h.rank, h.ready_since, c.aging_interval, _pick.at),
                h.ready_since, h.item
            limit 1;
        else
            select h.*, n.place into best
            from pg_catalog.generate_series(0, 8 * pg_catalog.cardinality(streams) - 1) as n (place)
            cross join lateral (
                select
                    streams[n.place / 8 + 1]::smallint as lane,
                    (n.place / 2 % 4)::smallint as rank,
                    n.place % 2 = 1 as late
            ) as s
            cross join lateral (
                select r.item, r.class_id, r.lane, r.rank, r.late, r.ready_since
                from eve.ready as r
                where r.queue_id = c.queue_id and r.lane = s.lane and r.rank = s.rank and r.late = s.late
                    and (r.ready_since, r.item) > (
                        coalesce(cursor_since[n.place + 1], case when s.late then null else (
                            select m.since from eve.mark as m
                            where m.queue_id = c.queue_id and m.lane = s.lane and m.rank = s.rank
                            order by m.since desc limit 1) end, '-infinity'),
                        coalesce(cursor_item[n.place + 1], 0))
                order by r.ready_since, r.item limit 1
            ) as h
            order by
                eve._effective_rank(h.rank, h.ready_since, c.aging_interval, _pick.at),
                h.ready_since, h.item
            limit 1;
        end if;
        if best.item is null then
            if picked.slot is not null and slot is null then
                perform eve._put_slot(c.queue_id, pool, picked.slot);
            end if;
            return null;
        end if;
        -- The slot is taken when a head was seen, so that an idle caller writes nothing.
        if take then
            picked.slot := coalesce(picked.slot, slot, eve._take_slot(c.queue_id, pool));
            if picked.slot is null then
                picked.item := best.item;
                return picked;
            end if;
            delete from eve.ready as r
            where r.queue_id = c.queue_id and r.lane = best.lane and r.rank = best.rank
                and r.late = best.late and r.ready_since = best.ready_since and r.item = (
                    select x.item from eve.ready as x
                    where x.queue_id = c.queue_id and x.lane = best.lane and x.rank = best.rank
                        and x.late = best.late and x.ready_since = best.ready_since and x.item = best.item
                    for update skip locked);
        else
            perform from eve.ready as r
            where r.queue_id = c.queue_id and r.lane = best.lane and r.rank = best.rank
                and r.late = best.late and r.ready_since = best.ready_since and r.item = best.item
            for update skip locked;
        end if;
        if found then
            picked.item := best.item;
            picked.class_id := best.class_id;
            picked.lane := best.lane;
            picked.rank := best.rank;
            picked.late := best.late;
            picked.ready_since := best.ready_since;
            return picked;
        end if;
        -- Held by another transaction, or gone: only this cursor moves past it.
        place := best.place + 1;
        cursor_since[place] := best.ready_since;
        cursor_item[place] := best.item;
    end loop;
end
$$;

comment on function eve._pick(
    eve.caller, integer[], boolean, timestamptz, text, integer, boolean
) is
'The next ready row in queue order: taken, with a slot for it (the one given, or one of the pool), or only locked; null when every head is at its end. Streams are lanes, or classes where not all of them may run.';

create function eve._take_ready(c eve.caller, picked eve.picked)
returns void
language plpgsql
as $$
begin
    delete from eve.ready as r
    where r.queue_id = c.queue_id and r.lane = picked.lane and r.rank = picked.rank
        and r.late = picked.late and r.ready_since = picked.ready_since and r.item = picked.item;
end
$$;

comment on function eve._take_ready(eve.caller, eve.picked) is
'Delete a locked ready row: the door row of an acquisition.';

commit;
