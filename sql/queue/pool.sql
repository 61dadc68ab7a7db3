-- queue/pool.sql · where leases run. Pool local has one slot, fixed by constraint; others have what a human approved.
begin;

create table eve.pool (
    queue_id bigint not null,
    pool text not null,
    slots integer not null,
    surplus integer not null default 0,
    numbers integer not null default 0,
    decision bigint,
    paused boolean not null,
    classes text[],
    constraint pool_pkey primary key (queue_id, pool),
    constraint pool_name_is_short check (length(pool) between 1 and 200 and pool !~ '[[:cntrl:]]'),
    constraint pool_local_has_one_slot check (pool <> 'local' or (slots = 1 and decision is null)),
    constraint pool_slots_are_bounded check (slots between 0 and 1024),
    constraint pool_surplus_is_not_negative check (surplus >= 0),
    constraint pool_slots_need_a_decision check (pool = 'local' or slots = 0 or decision is not null)
);

comment on table eve.pool is
'The pools of a queue and their authorised slots, reserved for the classes named where any are; without an accepted spend decision a pool other than local has none. surplus counts the leases that a shrunken pool still waits for: as many slots are not put back. Free and held slots are slots and surplus together; none has a number above numbers.';

create sequence eve.free_slot_seq as bigint;

comment on sequence eve.free_slot_seq is 'Ever-growing keys of free slots, so that the first free one is found without passing the dead.';

create table eve.free_slot (
    queue_id bigint not null,
    pool text not null,
    seq bigint not null default nextval('eve.free_slot_seq'),
    number integer not null,
    constraint free_slot_pkey primary key (queue_id, pool, seq)
);

comment on table eve.free_slot is
'The slots that hold no lease: taken by deleting, put back under a fresh key. Numbers are names; how many there are is what eve_audit compares.';

create table eve.slot_mark (
    queue_id bigint not null,
    pool text not null,
    exact boolean not null,
    seq bigint not null,
    xid xid8 not null default pg_current_xact_id(),
    constraint slot_mark_pkey primary key (queue_id, pool, exact, seq, xid)
);

comment on table eve.slot_mark is
'Where the search for a free slot starts: insert-only, read highest first. The first look starts at a sloppy mark; one that finds nothing looks once more from the exact one, below which no free slot is or will ever be.';

create table eve.held_slot (
    queue_id bigint not null,
    item bigint not null,
    token bigint not null,
    pool text not null,
    number integer not null,
    principal text not null,
    worker text not null,
    acquired_at timestamptz not null,
    expires_at timestamptz not null,
    constraint held_slot_pkey primary key (queue_id, item, token)
)
with (fillfactor = 80);

create index held_slot_number on eve.held_slot (queue_id, pool, number, acquired_at);

comment on table eve.held_slot is
'One row a live lease, and its fence: locked FOR KEY SHARE it lets a renewal pass, makes an end wait and a recovery skip. Live rows are found by the numbers that are not free, the newest of each first; no index is touched by a renewal.';

create type eve.lapse as (
    item bigint,
    token bigint,
    expires_at timestamptz
);

comment on type eve.lapse is 'A lease and when it lapses.';

create function eve._slot_mark(queue_id bigint, pool text, exact boolean)
returns bigint
language plpgsql
stable
as $$
begin
    return coalesce((
        select m.seq from eve.slot_mark as m
        where m.queue_id = _slot_mark.queue_id and m.pool = _slot_mark.pool and m.exact = _slot_mark.exact
        order by m.seq desc limit 1), 0);
end
$$;

comment on function eve._slot_mark(bigint, text, boolean) is
'The newest mark of a pool''s free slots: sloppy, or exact.';

create function eve._take_slot(queue_id bigint, pool text)
returns integer
language plpgsql
as $$
declare
    mark bigint := eve._slot_mark(queue_id, pool, false);
    again boolean := false;
    taken record;
begin
    loop
        delete from eve.free_slot as f
        where f.queue_id = _take_slot.queue_id and f.pool = _take_slot.pool and f.seq = (
            select s.seq from eve.free_slot as s
            where s.queue_id = _take_slot.queue_id and s.pool = _take_slot.pool and s.seq >= mark
            order by s.seq limit 1 for update skip locked)
        returning f.seq, f.number into taken;
        if taken.seq is null then
            exit when again;
            again := true;
            mark := eve._slot_mark(queue_id, pool, true);
            continue;
        end if;
        -- A slot that a shrunken pool has too many is dropped, not used.
        update eve.pool as p set surplus = p.surplus - 1
        where p.queue_id = _take_slot.queue_id and p.pool = _take_slot.pool and p.surplus > 0;
        if not found then
            if taken.seq > mark + 200 then
                insert into eve.slot_mark (queue_id, pool, exact, seq)
                values (_take_slot.queue_id, _take_slot.pool, false, taken.seq)
                on conflict on constraint slot_mark_pkey do nothing;
            end if;
            return taken.number;
        end if;
    end loop;
    return null;
end
$$;

comment on function eve._take_slot(bigint, text) is
'Take one free slot of a pool, or null: never more leases than slots, at every isolation level.';

create function eve._put_slot(queue_id bigint, pool text, number integer)
returns void
language plpgsql
as $$
begin
    update eve.pool as p set surplus = p.surplus - 1
    where p.queue_id = _put_slot.queue_id and p.pool = _put_slot.pool and p.surplus > 0;
    if not found then
        insert into eve.free_slot (queue_id, pool, number)
        values (_put_slot.queue_id, _put_slot.pool, _put_slot.number);
    end if;
end
$$;

comment on function eve._put_slot(bigint, text, integer) is
'Put a slot back at the end of its lease, unless the pool has shrunk and waits for leases to end.';

create function eve._live_leases(queue_id bigint, pool text)
returns setof eve.lapse
language plpgsql
stable
as $$
declare
    place record;
    taken integer[];
begin
    for place in
        select p.pool, p.numbers from eve.pool as p
        where p.queue_id = _live_leases.queue_id and (_live_leases.pool is null or p.pool = _live_leases.pool)
    loop
        taken := array(
            select n.number from pg_catalog.generate_series(1, place.numbers) as n (number)
            except
            select f.number from eve.free_slot as f
            where f.queue_id = _live_leases.queue_id and f.pool = place.pool
                and f.seq >= eve._slot_mark(_live_leases.queue_id, place.pool, true));
        return query
            select h.item, h.token, h.expires_at
            from pg_catalog.unnest(taken) as n (number)
            cross join lateral (
                select k.item, k.token, k.expires_at from eve.held_slot as k
                where k.queue_id = _live_leases.queue_id and k.pool = place.pool and k.number = n.number
                order by k.acquired_at desc limit 1
            ) as h;
    end loop;
end
$$;

comment on function eve._live_leases(bigint, text) is
'The lease rows of a pool, or of all: for each number that is not free the newest. It passes no dead rows but those of a number''s last ends.';

create function eve._add_slots(queue_id bigint, pool text, many integer)
returns void
language sql
begin atomic
    -- One statement sees each number either free or held: none is made twice.
    insert into eve.free_slot (queue_id, pool, number)
    select _add_slots.queue_id, _add_slots.pool, n.number
    from pg_catalog.generate_series(1, 4096) as n (number)
    where not exists (
            select from eve.free_slot as f
            where f.queue_id = _add_slots.queue_id and f.pool = _add_slots.pool
                and f.number = n.number)
        and not exists (
            select from eve.held_slot as h
            where h.queue_id = _add_slots.queue_id and h.pool = _add_slots.pool
                and h.number = n.number)
    order by n.number limit _add_slots.many;
    -- An update in any case: who counted in an older snapshot gets 40001 instead of adding the same again.
    update eve.pool as p
    set numbers = greatest(
        p.numbers,
        (select max(f.number) from eve.free_slot as f where f.queue_id = p.queue_id and f.pool = p.pool),
        (select max(h.number) from eve.held_slot as h where h.queue_id = p.queue_id and h.pool = p.pool))
    where p.queue_id = _add_slots.queue_id and p.pool = _add_slots.pool;
end;

comment on function eve._add_slots(bigint, text, integer) is
'Add free slots under the lowest numbers that are neither free nor held, and note the highest number in use.';

create function eve._drop_slots(queue_id bigint, pool text, many integer)
returns integer
language plpgsql
as $$
declare
    dropped integer;
begin
    -- One that is being taken is not waited for: if that is rolled back, the next to take it drops it.
    -- The array is made once: a joined subquery would lock and drop more each time it is scanned again.
    delete from eve.free_slot as f
    where f.queue_id = _drop_slots.queue_id and f.pool = _drop_slots.pool and f.seq = any (array(
        select s.seq from eve.free_slot as s
        where s.queue_id = _drop_slots.queue_id and s.pool = _drop_slots.pool
        order by s.number desc limit many for update skip locked));
    get diagnostics dropped = row_count;
    return dropped;
end
$$;

comment on function eve._drop_slots(bigint, text, integer) is
'Take out at most so many free slots; how many there were.';

create function eve._resize_pool(queue_id bigint, pool text, slots integer, decision bigint)
returns void
language plpgsql
as $$
declare
    was record;
    more integer;
    left_over integer;
begin
    select p.slots, p.surplus into strict was
    from eve.pool as p
    where p.queue_id = _resize_pool.queue_id and p.pool = _resize_pool.pool
    for update;
    more := slots - was.slots;
    -- Free slots go at once, the rest as leases end; a pool that grows keeps those first.
    left_over := case when more < 0
        then was.surplus - more - eve._drop_slots(queue_id, pool, -more)
        else greatest(0, was.surplus - more) end;
    update eve.pool as p
    set slots = _resize_pool.slots, decision = _resize_pool.decision, surplus = left_over
    where p.queue_id = _resize_pool.queue_id and p.pool = _resize_pool.pool;
    if more > was.surplus then
        perform eve._add_slots(queue_id, pool, more - was.surplus);
    end if;
end
$$;

comment on function eve._resize_pool(bigint, text, integer, bigint) is
'Give a pool the slots of an accepted decision. Fewer than before: no lease ends, and none begins until few enough are left.';

commit;
