-- acquire/acquire.sql · the one door: housekeeping, gates, pick, slot, grant. A refused acquisition writes nothing to its item.
begin;

create function eve._facts(c eve.caller, k eve.candidate, inout door eve.door)
returns eve.door
language plpgsql
stable
as $$
begin
    door.named := true;
    door.phase := (k.state).phase;
    door.attempts := (k.state).attempts;
    door.budget := eve._budget(k.policy, k.state);
    door.ttl_floor := (k.policy).ttl_floor;
    door.ttl_ceiling := (k.policy).ttl_ceiling;
    if k.edges > 0 then
        select
            pg_catalog.array_agg(d.on_work_id order by d.on_work_id) filter (where d.on_item is null),
            pg_catalog.array_agg(d.on_work_id order by d.on_work_id) filter (where d.on_item is not null)
        into door.unknown_edges, door.open_edges
        from eve.dependency as d
        left join eve.work_item as p on p.queue_id = d.queue_id and p.item = d.on_item
        where d.queue_id = c.queue_id and d.item = k.item and d.open
            and ((p.queue_state).phase is distinct from 'verified');
        if door.open_edges is not null then
            door.cycle := eve._cycle(c.queue_id, k.item);
        end if;
    end if;
    if door.phase in ('ready', 'held') then
        door.over_spend := eve._over_spend(c.queue_id, k.item, k.policy);
    end if;
    if door.phase = 'held' then
        door.gated_hold := not exists (
            select from eve.hold as h
            where h.queue_id = c.queue_id and h.item = k.item
                and h.trigger not in ('dependency', 'decision', 'key'));
    end if;
end
$$;

comment on function eve._facts(eve.caller, eve.candidate, eve.door) is
'Complete the facts of the door with those of one item.';

create function eve._refused(
    c eve.caller,
    item bigint,
    pool text,
    door eve.door,
    codes text[],
    at timestamptz
)
returns eve.acquisition_answer
language plpgsql
stable
as $$
declare
    answer eve.acquisition_answer;
    lapses timestamptz;
begin
    answer.granted := false;
    answer.refusal := codes[1];
    answer.item := item;
    answer.pool := pool;
    answer.detail := eve._door_detail(door, codes);
    answer.next := eve._next(codes[1], c.queue, item);
    answer.replayed := false;
    if codes[1] = 'concurrency_exhausted' then
        select min(l.expires_at) into lapses from eve._live_leases(c.queue_id, pool) as l;
        answer.next_at := lapses;
        answer.retry_after := greatest(interval '1 s', least(interval '60 s', lapses - at));
    elsif codes[1] = 'fleet_halted' then
        answer.retry_after := interval '30 s';
    end if;
    return answer;
end
$$;

comment on function eve._refused(eve.caller, bigint, text, eve.door, text[], timestamptz) is
'The answer of a refused acquisition: code, detail, next, and when to ask again.';

create function eve._next_at(queue_id bigint)
returns timestamptz
language plpgsql
stable
as $$
begin
    return least(
        (select h.due_at from eve.hold as h
            where h.queue_id = _next_at.queue_id and h.due_at >= eve._mark(_next_at.queue_id, 1::smallint)
            order by h.due_at limit 1),
        (select min(l.expires_at) from eve._live_leases(_next_at.queue_id, null) as l));
end
$$;

comment on function eve._next_at(bigint) is
'The earliest known instant at which something may become ready: a time trigger or a lapsing lease.';

create function eve._acquire(
    c eve.caller,
    worker text,
    item bigint,
    classes text[],
    pool text,
    ttl interval,
    max_items integer,
    handed eve.held[]
)
returns setof eve.acquisition_answer
language plpgsql
as $$
declare
    at timestamptz := eve._clock(c);
    door eve.door;
    codes text[];
    k eve.candidate;
    picked eve.picked;
    h eve.held;
    slots integer[] := '{}';
    streams integer[] := c.lanes;
    by_class boolean := false;
    why text;
    paused boolean;
    surplus integer;
    granted integer := 0;
    condemned integer := 0;
    faults jsonb;
    answer eve.acquisition_answer;
    answered bigint[] := '{}';
    given integer := 0;
    read_committed boolean := pg_catalog.current_setting('transaction_isolation') = 'read committed';
begin
    if not read_committed then
        -- Above READ COMMITTED the halt was read in an old snapshot: a halt since then is 40001 here.
        perform from eve.queue as q where q.queue_id = c.queue_id for share;
    end if;
    if c.limited and not c.halted then
        perform eve._pass_keys(c, at, 4);
    end if;
    door.halted := c.halted;
    door.ttl := ttl;
    door.ttl_floor := c.ttl_floor;
    door.ttl_ceiling := c.ttl_ceiling;
    door.named := false;
    select p.slots, p.paused, p.surplus into door.slots, paused, surplus from eve.pool as p
    where p.queue_id = c.queue_id and p.pool = _acquire.pool;
    if not found then
        perform eve._raise('P0002', pg_catalog.format('unknown pool "%s"', pg_catalog.left(pool, 200)),
            null, 'Define it with eve_define_pool.');
    end if;
    if paused then
        door.blocked := 'pool is paused';
    end if;
    -- Slots of leases that this call has ended are used first, if they are of this pool and it may keep them.
    foreach h in array handed loop
        if h.pool = pool and surplus = 0 then
            slots := slots || h.number;
        else
            perform eve._put_slot(c.queue_id, h.pool, h.number);
            surplus := greatest(0, surplus - (h.pool = pool)::integer);
        end if;
    end loop;
    door.free := slots <> '{}' or eve._slot_free(c.queue_id, pool);
    if not door.free and door.slots > 0 and read_committed then
        select r.faults into faults from eve._recover_lapsed(c, at, 16, pool, '[]') as r;
        if faults <> '[]' then
            raise warning using message = 'eve skipped rows in recovery', detail = faults::text;
        end if;
        door.free := eve._slot_free(c.queue_id, pool);
    end if;
    if item is not null then
        -- A named item: its door row first, never waiting; then the state.
        k := eve._candidate(c, item);
        if k.item is null then
            perform eve._refuse('unknown_item', c.queue, item);
        end if;
        if (k.state).phase = 'ready' then
            select r.item, r.class_id, r.lane, r.rank, r.late, r.ready_since, null into picked
            from eve.ready as r
            where r.queue_id = c.queue_id and r.lane = k.lane and r.rank = (k.state).rank
                and r.late = (k.state).late and r.ready_since = (k.state).ready_since
                and r.item = _acquire.item
            for update skip locked;
            k := eve._candidate(c, item);
        end if;
        door := eve._facts(c, k, door);
        door.blocked := case
            when door.blocked is not null then door.blocked
            when k.class_paused then 'class is paused'
            when (k.policy).pools is not null and pool <> all ((k.policy).pools)
                then 'class may not run in this pool'
            when exists (
                select from eve.pool as p
                where p.queue_id = c.queue_id and p.pool = _acquire.pool and k.class <> all (p.classes))
                then 'pool is reserved for other classes'
            when eve._downstream(c.queue_id, k.policy, at) like '%is unhealthy'
                then eve._downstream(c.queue_id, k.policy, at)
            when classes is not null and k.class <> all (classes)
                then 'class is not one of those asked for'
            when (k.state).phase = 'ready' and picked.item is null
                then 'another transaction is taking it'
            when (k.state).phase = 'ready'
                then nullif(nullif(eve._condemn(c, k, at), 'max attempts exceeded'), 'spend_not_approved')
        end;
        door.saturated := coalesce(
            eve._saturated_key(c.queue_id, item), nullif(eve._downstream(c.queue_id, k.policy, at), door.blocked));
        codes := eve._gates(door);
        if codes is null then
            picked.slot := coalesce(slots[1], eve._take_slot(c.queue_id, pool));
            if picked.slot is null then
                codes := array['concurrency_exhausted'];
            end if;
        end if;
        if codes is not null then
            return next eve._refused(c, item, pool, door, codes, at);
        else
            given := least(1, pg_catalog.cardinality(slots));
            perform eve._take_ready(c, picked);
            perform eve._promise(c, coalesce(ttl, (k.policy).ttl));
            answer := eve._grant(c, k, worker, pool, picked.slot, ttl);
            return next answer;
        end if;
        perform eve._put_slots(c, pool, slots[given + 1:]);
        if answer.answers is not null then
            perform eve._consume(c, array[item]);
        end if;
        return;
    end if;
    codes := eve._gates(door);
    if codes is not null then
        perform eve._put_slots(c, pool, slots);
        return next eve._refused(c, null, pool, door, codes, at);
        return;
    end if;
    if classes is not null or c.restricted then
        by_class := true;
        streams := eve._runnable(c, classes, pool, at);
        if streams = '{}' then
            door.saturated := eve._starved(c, classes, at);
            if door.saturated is not null then
                perform eve._put_slots(c, pool, slots);
                return next eve._refused(c, null, pool, door, array['concurrency_exhausted'], at);
                return;
            end if;
        end if;
    end if;
    while granted < max_items and condemned < 16 and pg_catalog.cardinality(streams) > 0 loop
        picked := eve._pick(c, streams, by_class, at, pool, slots[given + 1], ttl is null);
        exit when picked.item is null;
        if picked.slot is null and ttl is null then
            if granted = 0 then
                return next eve._refused(c, null, pool, door, array['concurrency_exhausted'], at);
                return;
            end if;
            exit;
        end if;
        k := eve._candidate(c, picked.item);
        why := eve._condemn(c, k, at);
        if why is null then
            door := eve._facts(c, k, door);
            codes := eve._gates(door);
        end if;
        if why is not null or codes is not null then
            if slots[given + 1] is null and picked.slot is not null then
                perform eve._put_slot(c.queue_id, pool, picked.slot);
            end if;
            if why is not null then
                perform eve._record_condemned(c, k, picked, why, at);
                condemned := condemned + 1;
                continue;
            end if;
            if ttl is null then
                -- The row as it was: the transaction that took it puts it back, so no mark has passed it.
                insert into eve.ready (queue_id, lane, rank, late, ready_since, item, class_id)
                values (c.queue_id, picked.lane, picked.rank, picked.late, picked.ready_since,
                    picked.item, picked.class_id);
            end if;
            if granted = 0 then
                perform eve._put_slots(c, pool, slots[given + 1:]);
                return next eve._refused(c, k.item, pool, door, codes, at);
                return;
            end if;
            exit;
        end if;
        if ttl is not null then
            -- A ttl is judged by the class of the item: nothing was taken before.
            picked.slot := coalesce(slots[given + 1], eve._take_slot(c.queue_id, pool));
            if picked.slot is null then
                if granted = 0 then
                    return next eve._refused(c, null, pool, door, array['concurrency_exhausted'], at);
                    return;
                end if;
                exit;
            end if;
            perform eve._take_ready(c, picked);
        end if;
        if slots[given + 1] is not null then
            given := given + 1;
        end if;
        if granted = 0 then
            perform eve._promise(c, coalesce(ttl, (k.policy).ttl));
        end if;
        answer := eve._grant(c, k, worker, pool, picked.slot, ttl);
        return next answer;
        if answer.answers is not null then
            answered := answered || answer.item;
        end if;
        granted := granted + 1;
        if pg_catalog.random() < 0.004 then
            for rank in 0..3 loop
                perform eve._advance(c.queue_id, picked.lane, rank::smallint);
                if by_class then
                    perform eve._advance_class(c.queue_id, picked.class_id, rank::smallint);
                end if;
            end loop;
            perform eve._advance_slots(c.queue_id, pool);
            if c.limited then
                perform eve._advance_calls(c.queue_id);
            end if;
            perform eve._probe(c.queue_id);
        end if;
    end loop;
    perform eve._put_slots(c, pool, slots[given + 1:]);
    if answered <> '{}' then
        perform eve._consume(c, answered);
    end if;
    if granted = 0 then
        answer := eve._nothing_ready(c, pool);
        if condemned = 16 then
            -- There may be more behind those that were passed over.
            answer.next_at := at;
        end if;
        return next answer;
    end if;
end
$$;

comment on function eve._acquire(eve.caller, text, bigint, text[], text, interval, integer, eve.held[]) is
'Admit up to max_items acquisitions: every check before any write; slots handed over by finished leases are used first and put back when not needed.';

create function eve._promise(c eve.caller, ttl interval)
returns void
language plpgsql
as $$
begin
    perform eve._durable(c);
    -- A transaction left open holds its slot: it may idle no longer than the lease lasts.
    perform eve._bound_idle(greatest(interval '1 s', least(ttl, interval '24 days')));
end
$$;

comment on function eve._promise(eve.caller, interval) is
'Before a grant: durability, and a bound on how long the granting transaction may idle.';

create function eve._put_slots(c eve.caller, pool text, numbers integer[])
returns void
language plpgsql
as $$
declare
    number integer;
begin
    foreach number in array numbers loop
        perform eve._put_slot(c.queue_id, pool, number);
    end loop;
end
$$;

comment on function eve._put_slots(eve.caller, text, integer[]) is
'Put back slots of finished leases that no new lease took over.';

create function eve._slot_free(queue_id bigint, pool text)
returns boolean
language plpgsql
as $$
begin
    -- From the sloppy mark on first: what was taken lies behind.
    return exists (
        select from eve.free_slot as f
        where f.queue_id = _slot_free.queue_id and f.pool = _slot_free.pool
            and f.seq >= eve._slot_mark(_slot_free.queue_id, _slot_free.pool, false))
        or exists (
            select from eve.free_slot as f
            where f.queue_id = _slot_free.queue_id and f.pool = _slot_free.pool
                and f.seq >= eve._slot_mark(_slot_free.queue_id, _slot_free.pool, true));
end
$$;

comment on function eve._slot_free(bigint, text) is
'Whether a free slot of the pool is visible. Volatile: each call sees what has committed.';

create function eve._runnable(c eve.caller, classes text[], pool text, at timestamptz)
returns integer[]
language plpgsql
stable
as $$
declare
    unknown text;
begin
    select u.name into unknown from pg_catalog.unnest(classes) as u (name)
    where not exists (
        select from eve.work_class as w where w.queue_id = c.queue_id and w.name = u.name)
    limit 1;
    if found then
        perform eve._raise('P0002', pg_catalog.format('unknown class "%s"', pg_catalog.left(unknown, 200)),
            null, 'Define it with eve_define_class.');
    end if;
    return array(
        select w.class_id
        from eve.work_class as w
        join eve.class_revision as r
            on r.queue_id = w.queue_id and r.class_id = w.class_id and r.revision = w.revision
        where w.queue_id = c.queue_id and not w.paused
            and (classes is null or w.name = any (classes))
            and ((r.policy).pools is null or pool = any ((r.policy).pools))
            and not exists (
                select from eve.pool as p
                where p.queue_id = c.queue_id and p.pool = _runnable.pool and w.name <> all (p.classes))
            and eve._downstream(c.queue_id, r.policy, _runnable.at) is null);
end
$$;

comment on function eve._runnable(eve.caller, text[], text, timestamptz) is
'The classes that may run now: not paused, asked for, allowed in the pool, with outside dependencies that can take work. Refuses an unknown class with P0002.';

create function eve._starved(c eve.caller, classes text[], at timestamptz)
returns text
language plpgsql
stable
as $$
begin
    return (
        select d.why
        from eve.work_class as w
        join eve.class_revision as r
            on r.queue_id = w.queue_id and r.class_id = w.class_id and r.revision = w.revision
        cross join lateral eve._downstream(c.queue_id, r.policy, _starved.at) as d (why)
        where w.queue_id = c.queue_id and not w.paused and (classes is null or w.name = any (classes))
            and d.why is not null
        order by w.class_id limit 1);
end
$$;

comment on function eve._starved(eve.caller, text[], timestamptz) is
'Which outside dependency keeps a class that was asked for from running, where none may run.';

create function eve._nothing_ready(c eve.caller, pool text)
returns eve.acquisition_answer
language plpgsql
stable
as $$
declare
    answer eve.acquisition_answer;
begin
    answer.granted := false;
    answer.pool := pool;
    answer.next_at := eve._next_at(c.queue_id);
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._nothing_ready(eve.caller, text) is
'The answer of an empty queue: no refusal, and when something may be ready.';

commit;
