-- fold/project.sql · the trigger: folds each event into work_item, stamps version, token, phase and hash, moves the search structures.
begin;

create function eve._project_item(
    queue_id bigint,
    item bigint,
    class_id integer,
    lane smallint,
    was eve.state,
    state eve.state,
    holds jsonb
)
returns void
language plpgsql
as $$
begin
    -- Door rows of the old phase: ready rows go here unless the picking verb took them, held_slot rows
    -- always with the verb.
    if was.phase = 'ready' and (state.phase <> 'ready' or was.rank <> state.rank) then
        delete from eve.ready as r
        where r.queue_id = _project_item.queue_id and r.lane = _project_item.lane
            and r.rank = was.rank and r.late = was.late
            and r.ready_since = was.ready_since and r.item = _project_item.item;
    elsif was.phase = 'held' and (state.phase <> 'held' or holds is not null) then
        -- Reasons that stay keep their row: a parent that waits for it must find it.
        delete from eve.hold as h
        where h.queue_id = _project_item.queue_id and h.item = _project_item.item
            and (state.phase <> 'held' or not exists (
                select from pg_catalog.jsonb_to_recordset(holds) as n (reason text, ref text)
                where n.reason = h.reason and coalesce(n.ref, '') = h.ref));
    end if;
    if state.phase = 'ready' and (was.phase is distinct from 'ready' or was.rank <> state.rank) then
        insert into eve.ready (queue_id, lane, rank, late, ready_since, item, class_id)
        values (_project_item.queue_id, _project_item.lane, state.rank, state.late,
            state.ready_since, _project_item.item, _project_item.class_id);
    elsif state.phase = 'held' and holds is null and was.phase = 'held' then
        if was.rank <> state.rank then
            update eve.hold as h set rank = state.rank
            where h.queue_id = _project_item.queue_id and h.item = _project_item.item and h.class_id is not null;
        end if;
    elsif state.phase = 'held' and holds is null then
        perform eve._raise('55000', 'a held event names no reasons',
            pg_catalog.jsonb_build_object('item', _project_item.item), null);
    elsif state.phase = 'held' then
        if was.phase = 'held' then
            -- What the event says of a reason that stays.
            update eve.hold as h
            set owner = n.owner, trigger = n.trigger, due_at = n.due_at
            from pg_catalog.jsonb_to_recordset(holds) as n (
                reason text, ref text, owner text, trigger text, due_at timestamptz)
            where h.queue_id = _project_item.queue_id and h.item = _project_item.item
                and h.reason = n.reason and h.ref = coalesce(n.ref, '')
                and (h.owner, h.trigger, h.due_at) is distinct from (n.owner, n.trigger, n.due_at);
        end if;
        insert into eve.hold (
            queue_id, item, reason, ref, owner, trigger, due_at, look_at, open_edges, class_id, rank, place)
        select
            _project_item.queue_id, _project_item.item, h.reason, coalesce(h.ref, ''), h.owner, h.trigger, h.due_at,
            -- What releases it may have happened already, unseen by whoever did it.
            case when h.trigger <> 'time' then state.at end,
            case when h.reason = 'dependency_not_ready' then (
                select pg_catalog.count(*) from eve.dependency as d
                where d.queue_id = _project_item.queue_id and d.item = _project_item.item and d.open)
            end,
            case when h.trigger = 'key' then _project_item.class_id end,
            case when h.trigger = 'key' then state.rank end,
            h.place
        from pg_catalog.jsonb_to_recordset(holds) as h (
            reason text, ref text, owner text, trigger text, due_at timestamptz, place timestamptz)
        where not exists (
            select from eve.hold as k
            where k.queue_id = _project_item.queue_id and k.item = _project_item.item
                and k.reason = h.reason and k.ref = coalesce(h.ref, ''));
        if not found and not exists (
            select from eve.hold as k
            where k.queue_id = _project_item.queue_id and k.item = _project_item.item) then
            perform eve._raise('55000', 'a held event names no reasons',
                pg_catalog.jsonb_build_object('item', _project_item.item), null);
        end if;
    elsif state.phase = 'leased' and (was.phase is distinct from 'leased') then
        insert into eve.held_slot (
            queue_id, item, token, pool, number, principal, worker, acquired_at, expires_at)
        values (
            _project_item.queue_id, _project_item.item, state.token, state.pool, state.slot,
            state.principal, state.worker, state.acquired_at, state.expires_at);
    elsif state.phase = 'leased' and state.expires_at <> was.expires_at then
        update eve.held_slot as h set expires_at = state.expires_at
        where h.queue_id = _project_item.queue_id and h.item = _project_item.item
            and h.token = state.token;
    end if;
end
$$;

comment on function eve._project_item(bigint, bigint, integer, smallint, eve.state, eve.state, jsonb) is
'Move the search structures of an item from one state to the next: ready, hold, held_slot. Called by the fold trigger and by the rebuild.';

create function eve._fold()
returns trigger
language plpgsql
as $$
declare
    was eve.state;
    state eve.state;
    previous bytea;
    of_class integer;
    of_lane smallint;
    of_size integer;
    of_merges boolean;
    of_effect boolean;
    of_limited boolean;
    stored record;
begin
    select x.queue_state as state, x.hash, x.class_id, x.lane, x.size, x.coalesces, x.effect_unique, x.limited
    into stored
    from eve.work_item as x
    where x.queue_id = new.queue_id and x.item = new.item;
    was := stored.state;
    previous := stored.hash;
    of_class := stored.class_id;
    of_lane := stored.lane;
    of_size := stored.size;
    new.at := greatest(new.at, was.at);
    state := eve.step(was, eve._event(
        new.kind, new.phase, new.at, new.principal, new.worker, new.epoch, new.revision, new.token,
        new.pool, new.slot, new.due_at, new.rank, new.attempts, new.reason));
    new.version := state.version;
    new.phase := state.phase;
    if state.token > coalesce(was.token, 0) then
        new.token := state.token;
    end if;
    new.hash := eve._hash(
        previous, new.queue_id, new.item, new.version, new.tx, new.kind, new.phase, new.at,
        new.actor, new.principal, new.worker, new.epoch, new.revision, new.token, new.pool,
        new.slot, new.due_at, new.rank, new.attempts, new.reason, new.data);
    if was.version is null then
        if new.item = 0 then
            of_class := 0;
            of_lane := 0;
            of_size := 0;
            of_merges := false;
            of_effect := false;
            of_limited := false;
        else
            select i.class_id, i.lane, i.payload_size, i.coalesces, i.effect_unique, i.limited
            into strict of_class, of_lane, of_size, of_merges, of_effect, of_limited
            from eve.intent as i
            where i.queue_id = new.queue_id and i.item = new.item;
        end if;
        insert into eve.work_item (
            queue_id, item, class_id, lane, size, coalesces, effect_unique, limited, queue_state, hash)
        values (
            new.queue_id, new.item, of_class, of_lane, of_size, of_merges, of_effect, of_limited, state, new.hash);
    else
        update eve.work_item as w set queue_state = state, hash = new.hash
        where w.queue_id = new.queue_id and w.item = new.item
            and (w.queue_state).version = was.version;
        if not found then
            perform eve._raise('40001', 'the item was changed by a concurrent transaction',
                pg_catalog.jsonb_build_object('item', new.item), 'Repeat the transaction.');
        end if;
    end if;
    if new.item <> 0 and state.phase is distinct from was.phase then
        insert into eve.tally (queue_id, class_id, tx, item, version, was, phase, size)
        values (new.queue_id, of_class, new.tx, new.item, new.version, was.phase, state.phase, of_size);
    end if;
    if stored.effect_unique and not eve._live(state.phase) and eve._live(was.phase) then
        perform eve._free_effect(new.queue_id, new.item);
    end if;
    if stored.coalesces and was.phase in ('held', 'ready') and state.phase not in ('held', 'ready') then
        perform eve._free_key(new.queue_id, new.item);
    end if;
    if stored.limited and was.phase in ('ready', 'leased') and state.phase not in ('ready', 'leased')
        -- One that is tried again at once keeps its ticket.
        and (new.kind = 'failed' and new.data ->> 'answered' = 'ready') is not true then
        perform eve._put_ticket(new.queue_id, new.item, of_class);
    end if;
    if new.item = 0 then
        perform eve._project_queue(new.queue_id, new.version, new.kind, new.at, new.actor, new.principal,
            new.epoch, new.data);
    elsif new.kind = 'acquired' then
        -- The picking verb has taken the ready row: only the lease is new.
        insert into eve.held_slot (
            queue_id, item, token, pool, number, principal, worker, acquired_at, expires_at)
        values (
            new.queue_id, new.item, state.token, state.pool, state.slot,
            state.principal, state.worker, state.acquired_at, state.expires_at);
    elsif state.phase in ('ready', 'held', 'leased') or was.phase in ('ready', 'held') then
        perform eve._project_item(new.queue_id, new.item, of_class, of_lane, was, state,
            new.data -> 'holds');
    end if;
    return new;
end
$$;

comment on function eve._fold() is
'Fold one event into its item and stamp version, token, phase and hash. Fires only for rows without a version: restored rows pass untouched.';

create trigger ledger_fold before insert on eve.ledger
for each row when (new.version is null) execute function eve._fold();

alter table eve.ledger enable always trigger ledger_fold;

comment on trigger ledger_fold on eve.ledger is 'version is null means: fold me.';

commit;
