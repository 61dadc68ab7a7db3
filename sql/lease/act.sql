-- lease/act.sql · an act on an item takes its door row first, by waiting, and reads the state after it.
begin;

create type eve.acting as (
    item bigint,
    class_id integer,
    lane smallint,
    state eve.state,
    pool text,
    number integer
);

comment on type eve.acting is 'An item whose door row and work_item row an act holds; pool and number are those of the lease it may end.';

create function eve._act_on(c eve.caller, item bigint)
returns eve.acting
language plpgsql
as $$
declare
    a eve.acting;
    seen eve.state;
    door boolean;
begin
    loop
        select w.item, w.class_id, w.lane, w.queue_state into a.item, a.class_id, a.lane, a.state
        from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = _act_on.item and w.item > 0;
        if not found then
            perform eve._refuse('unknown_item', c.queue, item);
        end if;
        seen := a.state;
        door := seen.phase in ('ready', 'held', 'leased');
        if seen.phase = 'ready' then
            perform from eve.ready as r
            where r.queue_id = c.queue_id and r.lane = a.lane and r.rank = seen.rank
                and r.late = seen.late and r.ready_since = seen.ready_since
                and r.item = _act_on.item
            for update;
        elsif seen.phase = 'held' then
            perform eve._lock_holds(c, item, true);
        elsif seen.phase = 'leased' then
            a.pool := null;
            select h.pool, h.number into a.pool, a.number
            from eve.held_slot as h
            where h.queue_id = c.queue_id and h.item = _act_on.item and h.token = seen.token
            for update;
        end if;
        if door then
            -- Where it moved on meanwhile its new door row is taken, before work_item as by everybody else.
            a.state := (select w.queue_state from eve.work_item as w
                where w.queue_id = c.queue_id and w.item = _act_on.item);
            continue when ((a.state).phase, (a.state).token, (a.state).rank, (a.state).late, (a.state).ready_since)
                is distinct from (seen.phase, seen.token, seen.rank, seen.late, seen.ready_since);
        end if;
        perform from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = _act_on.item
        for no key update;
        -- The state is read in a statement after the lock.
        a.state := (select w.queue_state from eve.work_item as w
            where w.queue_id = c.queue_id and w.item = _act_on.item);
        exit when door or (a.state).phase = seen.phase;
        -- From a phase without a door it moved to one with a door, and work_item is locked already.
        perform eve._raise('40001', 'the item was changed by a concurrent transaction',
            pg_catalog.jsonb_build_object('item', item, 'phase', (a.state).phase), 'Repeat the transaction.');
    end loop;
    return a;
end
$$;

comment on function eve._act_on(eve.caller, bigint) is
'Lock an item for an act: door row, then work_item, then its state. Refuses an unknown item with P0002.';

create function eve._end_lease(c eve.caller, a eve.acting)
returns void
language plpgsql
as $$
begin
    if a.pool is null then
        return;
    end if;
    delete from eve.held_slot as h
    where h.queue_id = c.queue_id and h.item = a.item and h.token = (a.state).token;
    perform eve._put_slot(c.queue_id, a.pool, a.number);
end
$$;

comment on function eve._end_lease(eve.caller, eve.acting) is
'Delete the lease row that an act supersedes and put its slot back.';

create function eve._wrong_phase(c eve.caller, a eve.acting, act text)
returns void
language plpgsql
stable
as $$
begin
    perform eve._raise('55000', pg_catalog.format('%s is not possible in phase "%s"', act, (a.state).phase),
        pg_catalog.jsonb_build_object('item', a.item, 'phase', (a.state).phase),
        'Read the item with eve_item: its phase decides which acts are possible.');
end
$$;

comment on function eve._wrong_phase(eve.caller, eve.acting, text) is
'Refuse the right act on a wrong phase: 55000 with the phase in the detail.';

create function eve._acted(item bigint, appended eve.appended, detail jsonb default null)
returns eve.act_answer
language plpgsql
immutable
as $$
declare
    answer eve.act_answer;
begin
    answer.done := appended.version is not null;
    answer.item := item;
    answer.phase := appended.phase;
    answer.version := appended.version;
    answer.detail := detail;
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._acted(bigint, eve.appended, jsonb) is
'The answer of an act from what was appended.';

create function eve._act_replay(c eve.caller, key text, function text, fingerprint bytea)
returns eve.act_answer
language plpgsql
as $$
declare
    prior jsonb;
    answer eve.act_answer;
begin
    if key is null then
        return null;
    end if;
    prior := eve._request_open(c, key, function, fingerprint);
    if prior is null then
        return null;
    end if;
    answer := pg_catalog.jsonb_populate_record(null::eve.act_answer, prior);
    answer.replayed := true;
    return answer;
end
$$;

comment on function eve._act_replay(eve.caller, text, text, bytea) is
'The first answer of a keyed act, or null when it is the first or has no key.';

create function eve._act_keep(c eve.caller, key text, answer eve.act_answer)
returns eve.act_answer
language plpgsql
as $$
begin
    if key is not null then
        perform eve._request_close(c, key, pg_catalog.to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function eve._act_keep(eve.caller, text, eve.act_answer) is
'Keep the answer of a keyed act and give it.';

create function eve._queue_event(c eve.caller, kind text, data jsonb, reason text default null)
returns eve.appended
language plpgsql
as $$
begin
    -- Item 0 comes last in the lock order; its row is locked so that events of the queue follow each other.
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    perform eve._durable(c);
    return eve._append(c, 0, kind, eve._clock(c), reason => reason, data => data);
end
$$;

comment on function eve._queue_event(eve.caller, text, jsonb, text) is
'Append a fact of the queue under item 0.';

commit;
