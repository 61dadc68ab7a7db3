-- queue/pool.sql · where leases run. Pool local has one slot, fixed by constraint; others have what a human approved.
begin;

create table eve.pool (
    queue_id bigint not null,
    pool text not null,
    slots integer not null,
    decision bigint,
    paused boolean not null,
    constraint pool_pkey primary key (queue_id, pool),
    constraint pool_name_is_short check (length(pool) between 1 and 200 and pool !~ '[[:cntrl:]]'),
    constraint pool_local_has_one_slot check (pool <> 'local' or (slots = 1 and decision is null)),
    constraint pool_slots_are_bounded check (slots between 0 and 1024),
    constraint pool_slots_need_a_decision check (pool = 'local' or slots = 0 or decision is not null)
);

comment on table eve.pool is
'The pools of a queue and their authorised slots; without an accepted spend decision a pool other than local has none.';

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
'The slots that hold no lease: taken by deleting, put back under a fresh key. Free and held together are the authorised slots; eve_audit compares.';

create table eve.slot_mark (
    queue_id bigint not null,
    pool text not null,
    seq bigint not null,
    constraint slot_mark_pkey primary key (queue_id, pool, seq)
);

comment on table eve.slot_mark is
'Where the search for a free slot starts: insert-only, read highest first, sloppy by design (a miss looks once from the beginning).';

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

create index held_slot_expires_at on eve.held_slot (queue_id, expires_at);

comment on table eve.held_slot is
'One row a live lease, and its fence: locked FOR KEY SHARE it lets a renewal pass, makes an end wait and a recovery skip.';

create function eve._take_slot(queue_id bigint, pool text)
returns integer
language plpgsql
as $$
declare
    mark bigint;
    taken record;
begin
    select m.seq into mark from eve.slot_mark as m
    where m.queue_id = _take_slot.queue_id and m.pool = _take_slot.pool
    order by m.seq desc limit 1;
    loop
        delete from eve.free_slot as f
        where f.queue_id = _take_slot.queue_id and f.pool = _take_slot.pool and f.seq = (
            select s.seq from eve.free_slot as s
            where s.queue_id = _take_slot.queue_id and s.pool = _take_slot.pool
                and s.seq >= coalesce(mark, 0)
            order by s.seq limit 1 for update skip locked)
        returning f.seq, f.number into taken;
        if taken.seq is null then
            exit when mark is null;
            mark := null;
            continue;
        end if;
        -- A slot that a shrunken pool no longer has is dropped, not used.
        if exists (select from eve.pool as p
            where p.queue_id = _take_slot.queue_id and p.pool = _take_slot.pool
                and taken.number <= p.slots) then
            if taken.seq > coalesce(mark, 0) + 200 then
                insert into eve.slot_mark (queue_id, pool, seq)
                values (_take_slot.queue_id, _take_slot.pool, taken.seq)
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
    insert into eve.free_slot (queue_id, pool, number)
    select p.queue_id, p.pool, _put_slot.number
    from eve.pool as p
    where p.queue_id = _put_slot.queue_id and p.pool = _put_slot.pool and _put_slot.number <= p.slots;
end
$$;

comment on function eve._put_slot(bigint, text, integer) is
'Put a slot back at the end of its lease, unless the pool has shrunk below its number.';

commit;
