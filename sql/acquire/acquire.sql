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
    if door.phase = 'held' then
        door.gated_hold := not exists (
            select from eve.hold as h
            where h.queue_id = c.queue_id and h.item = k.item
                and h.trigger not in ('dependency', 'decision'));
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
        select min(h.expires_at) into lapses from eve.held_slot as h
        where h.queue_id = c.queue_id and h.pool = _refused.pool;
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
language sql
stable
begin atomic
    select least(
        (select h.due_at from eve.hold as h
            where h.queue_id = _next_at.queue_id and h.trigger = 'time' and h.due_at >= coalesce((
                select m.since from eve.mark as m
                where m.queue_id = h.queue_id and m.lane = 0 and m.rank = 1
                order by m.since desc limit 1), '-infinity')
            order by h.due_at limit 1),
        (select h.expires_at from eve.held_slot as h
            where h.queue_id = _next_at.queue_id and h.expires_at >= coalesce((
                select m.since from eve.mark as m
                where m.queue_id = h.queue_id and m.lane = 0 and m.rank = 0
                order by m.since desc limit 1), '-infinity')
            order by h.expires_at limit 1));
end;

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
    answer eve.acquisition_answer;
    streams integer[];
    blocked integer;
    unknown text;
    why text;
    slot integer;
    paused boolean;
    granted integer := 0;
    condemned integer := 0;
    given integer := 0;
    passed bigint[] := '{}';
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        -- Above READ COMMITTED the halt was read in an old snapshot: a halt since then is 40001 here.
        perform from eve.queue as q where q.queue_id = c.queue_id for share;
    end if;
    door.halted := c.halted;
    door.ttl := ttl;
    door.ttl_floor := c.ttl_floor;
    door.ttl_ceiling := c.ttl_ceiling;
    door.named := false;
    select p.slots, p.paused into door.slots, paused from eve.pool as p
    where p.queue_id = c.queue_id and p.pool = _acquire.pool;
    if not found then
        perform eve._raise('P0002', pg_catalog.format('unknown pool "%s"', pg_catalog.left(pool, 200)),
            null, 'Define it with eve_define_pool.');
    end if;
    if paused then
        door.blocked := 'pool is paused';
    end if;
    door.free := pg_catalog.cardinality(handed) > 0 or exists (
        select from eve.free_slot as f
        where f.queue_id = c.queue_id and f.pool = _acquire.pool and f.seq >= coalesce((
            select m.seq from eve.slot_mark as m
            where m.queue_id = f.queue_id and m.pool = f.pool
            order by m.seq desc limit 1), 0))
        or exists (
            select from eve.free_slot as f where f.queue_id = c.queue_id and f.pool = _acquire.pool);
    if not door.free and door.slots > 0
        and pg_catalog.current_setting('transaction_isolation') = 'read committed' then
        perform eve._recover_lapsed(c, at, 16, '[]');
        door.free := exists (
            select from eve.free_slot as f where f.queue_id = c.queue_id and f.pool = _acquire.pool);
    end if;
    if item is not null then
        -- A named item: its door row first, never waiting; then the state.
        k := eve._candidate(c, item);
        if k.item is null then
            perform eve._raise('P0002', pg_catalog.format('unknown item %s', item),
                pg_catalog.jsonb_build_object('item', item), 'Items are numbered by eve_submit.');
        end if;
        if (k.state).phase = 'ready' then
            select r.item, r.class_id, r.lane, r.rank, r.late, r.ready_since into picked
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
            when (k.policy).pools is not null and pool <> all ((k.policy).pools) then 'class may not run in this pool'
            when classes is not null and k.class <> all (classes) then 'class is not one of those asked for'
            when (k.state).phase = 'ready' and picked.item is null then 'another transaction is taking it'
            when (k.state).phase = 'ready' then case eve._condemn(c, k, at)
                when 'deadline_passed' then 'deadline_passed'
                when 'value_window_ended' then 'value_window_ended'
                when 'payload_invalid' then 'payload_invalid' end
        end;
        codes := eve._gates(door);
        if codes is null and pg_catalog.cardinality(handed) > 0 then
            slot := handed[1].number;
            given := 1;
        elsif codes is null then
            slot := eve._take_slot(c.queue_id, pool);
            if slot is null then
                codes := array['concurrency_exhausted'];
            end if;
        end if;
        if codes is not null then
            return next eve._refused(c, item, pool, door, codes, at);
        else
            perform eve._take_ready(c, picked);
            perform eve._promise(c, coalesce(ttl, (k.policy).ttl));
            return next eve._grant(c, k, worker, pool, slot, ttl);
        end if;
    else
        codes := eve._gates(door);
        if codes is not null then
            return next eve._refused(c, null, pool, door, codes, at);
            perform eve._put_slots(c, handed, 0);
            return;
        end if;
        if classes is not null then
            select u.name into unknown from pg_catalog.unnest(classes) as u (name)
            where not exists (
                select from eve.work_class as w where w.queue_id = c.queue_id and w.name = u.name)
            limit 1;
            if found then
                perform eve._raise('P0002', pg_catalog.format('unknown class "%s"', coalesce(pg_catalog.left(unknown, 200), 'null')),
                    null, 'Define it with eve_define_class.');
            end if;
        end if;
        select
            pg_catalog.array_agg(w.class_id) filter (where
                not w.paused and (classes is null or w.name = any (classes))
                and ((r.policy).pools is null or pool = any ((r.policy).pools))),
            pg_catalog.count(*) filter (where not (
                not w.paused and (classes is null or w.name = any (classes))
                and ((r.policy).pools is null or pool = any ((r.policy).pools))))
        into streams, blocked
        from eve.work_class as w
        join eve.class_revision as r
            on r.queue_id = w.queue_id and r.class_id = w.class_id and r.revision = w.revision
        where w.queue_id = c.queue_id;
        while granted < max_items and condemned < 16 and streams is not null loop
            picked := eve._pick(c, case when blocked > 0 then streams end, at, passed);
            exit when picked.item is null;
            k := eve._candidate(c, picked.item);
            why := eve._condemn(c, k, at);
            if why is not null then
                perform eve._record_condemned(c, k, picked, why, at);
                condemned := condemned + 1;
                continue;
            end if;
            door := eve._facts(c, k, door);
            if granted > 0 then
                -- Its own slot was seen only for the first of a batch: the rest must find one.
                door.free := true;
            end if;
            codes := eve._gates(door);
            if codes is null and given < coalesce(pg_catalog.cardinality(handed), 0) then
                given := given + 1;
                slot := handed[given].number;
            elsif codes is null then
                slot := eve._take_slot(c.queue_id, pool);
                if slot is null then
                    codes := array['concurrency_exhausted'];
                end if;
            end if;
            if codes is not null then
                if granted = 0 then
                    return next eve._refused(c,
                        case when codes[1] = 'concurrency_exhausted' then null else k.item end, pool, door, codes, at);
                    granted := -1;
                end if;
                exit;
            end if;
            perform eve._take_ready(c, picked);
            if granted = 0 then
                perform eve._promise(c, coalesce(ttl, (k.policy).ttl));
            end if;
            answer := eve._grant(c, k, worker, pool, slot, ttl);
            return next answer;
            granted := granted + 1;
            if pg_catalog.random() < 0.004 then
                perform eve._advance(c.queue_id, picked.lane, picked.rank);
                perform eve._probe(c.queue_id);
            end if;
        end loop;
        if granted = 0 then
            answer := null;
            answer.granted := false;
            answer.pool := pool;
            answer.next_at := eve._next_at(c.queue_id);
            answer.replayed := false;
            return next answer;
        end if;
    end if;
    perform eve._put_slots(c, handed, given);
end
$$;

comment on function eve._acquire(eve.caller, text, bigint, text[], text, interval, integer, eve.held[]) is
'Admit up to max_items acquisitions: every check before any write; slots handed over by finished leases are used first and put back when not needed.';

create function eve._promise(c eve.caller, ttl interval)
returns void
language plpgsql
as $$
declare
    cap bigint := greatest(1000, least(extract(epoch from ttl) * 1000, 2147483647));
    now_ms bigint;
begin
    perform eve._durable(c);
    -- A transaction left open holds its slot: it may idle no longer than the lease lasts.
    select s.setting into now_ms from pg_catalog.pg_settings as s
    where s.name = 'idle_in_transaction_session_timeout';
    if now_ms = 0 or now_ms > cap then
        perform pg_catalog.set_config('idle_in_transaction_session_timeout', cap::text, true);
    end if;
end
$$;

comment on function eve._promise(eve.caller, interval) is
'Before a grant: durability, and a bound on how long the granting transaction may idle.';

create function eve._put_slots(c eve.caller, handed eve.held[], given integer)
returns void
language plpgsql
as $$
declare
    h eve.held;
begin
    foreach h in array coalesce(handed[given + 1:], '{}') loop
        perform eve._put_slot(c.queue_id, h.pool, h.number);
    end loop;
end
$$;

comment on function eve._put_slots(eve.caller, eve.held[], integer) is
'Put back the slots of finished leases from the given place on.';

commit;
