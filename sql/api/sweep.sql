-- api/sweep.sql · do all housekeeping at once. Appends: lease_expired, lease_missing, lease_superseded, released, held, expired, dead, clock_stepped.
begin;

create function eve._retire(c eve.caller, at timestamptz, at_most integer, inout faults jsonb, out dead integer)
returns record
language plpgsql
as $$
declare
    old record;
begin
    dead := 0;
    for old in
        select w.item
        from eve.work_item as w
        join eve.work_class as k on k.queue_id = w.queue_id and k.class_id = w.class_id
        join eve.class_revision as r
            on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
        where w.queue_id = c.queue_id and (w.queue_state).phase = 'quarantined'
            and (w.queue_state).at + (r.policy).retention <= _retire.at
        order by w.item limit at_most
        for update of w skip locked
    loop
        begin
            continue when not eve._lock_children(c, array[old.item], false);
            perform eve._append(c, old.item, 'dead', at, reason => 'retention');
            perform eve._close_edges(c, old.item, 'dead', at);
            dead := dead + 1;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'item', old.item, 'act', 'dead', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._retire(eve.caller, timestamptz, integer, jsonb) is
'End quarantined items past the retention of their class.';

create function eve._sweep_replay(c eve.caller, key text, function text, fingerprint bytea)
returns eve.sweep_answer
language plpgsql
as $$
begin
    return case when key is not null then pg_catalog.jsonb_populate_record(
        null::eve.sweep_answer, eve._request_open(c, key, function, fingerprint)) end;
end
$$;

comment on function eve._sweep_replay(eve.caller, text, text, bytea) is
'The first answer of a keyed sweep, or nulls when it is the first or has no key.';

create function public.eve_sweep(
    queue text,
    at_most integer default 10000,
    idempotency_key text default null
)
returns eve.sweep_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.sweep_answer;
    faults jsonb := '[]';
    at timestamptz;
    n integer;
    alone boolean;
    slots integer;
    item bigint;
    place record;
begin
    c := eve._enter(queue, '{worker,operator}');
    if at_most is null or at_most not between 1 and 1000000 then
        perform eve._raise('22023', 'at_most is not between 1 and 1000000', '{"argument": "at_most"}', 'Pass a bound.');
    end if;
    answer := eve._sweep_replay(c, idempotency_key, 'eve_sweep', eve._fingerprint('eve_sweep',
        eve._text(queue), int4send(at_most)));
    if answer.faults is not null then
        return answer;
    end if;
    at := eve._clock(c);
    -- All that follows skips what is locked; slots are counted by one sweeper at a time.
    perform from eve.keeper as k where k.queue_id = c.queue_id for update skip locked;
    alone := found;
    if eve.now() < c.tick - interval '1 s' then
        perform eve._queue_event(c, 'clock_stepped', jsonb_build_object(
            'behind_s', extract(epoch from c.tick - eve.now())));
    end if;
    insert into eve.tick (queue_id, at) values (c.queue_id, greatest(at, c.tick))
    on conflict on constraint tick_pkey do nothing;
    select r.recovered, r.faults into answer.recovered, faults
    from eve._recover_lapsed(c, at, at_most, null, faults) as r;
    -- Free and held slots account for every lease: only when they do not, each item is looked at.
    select coalesce(sum(p.slots + p.surplus), 0)::integer into slots from eve.pool as p where p.queue_id = c.queue_id;
    select count(*)::integer into n from eve.held_slot as h where h.queue_id = c.queue_id;
    n := n + (select count(*)::integer from eve.free_slot as f where f.queue_id = c.queue_id);
    if alone and n <> slots or exists (
        select from eve.held_slot as h
        left join eve.work_item as w on w.queue_id = h.queue_id and w.item = h.item
        where h.queue_id = c.queue_id
            and ((w.queue_state).phase is distinct from 'leased' or (w.queue_state).token <> h.token)) then
        select r.recovered, r.faults into n, faults from eve._recover_orphans(c, at, faults) as r;
        answer.recovered := answer.recovered + n;
        answer.repaired := case when alone then eve._repair_slots(c) else 0 end;
    else
        answer.repaired := 0;
    end if;
    select r.released, r.faults into answer.released, faults from eve._release_due(c, at, at_most, faults) as r;
    select r.expired, r.faults into answer.expired, faults from eve._expire_due(c, at, at_most, faults) as r;
    select r.looked, r.faults into answer.rechecked, faults
    from eve._look_again(c, at, at_most, at_most, faults) as r;
    -- And at every other waiting item, in case a trigger was lost.
    foreach item in array eve._stale(c.queue_id, array(
        select distinct h.item from eve.hold as h
        where h.queue_id = c.queue_id and h.trigger <> 'time' order by h.item limit at_most), at)
    loop
        begin
            if eve._lock_holds(c, item, false) and eve._rederive(c, item, at, 'looked at again') then
                answer.rechecked := answer.rechecked + 1;
            end if;
        exception when others then
            faults := faults || jsonb_build_object(
                'item', item, 'act', 'looked', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
    if alone then
        select r.settled, r.faults into n, faults from eve._refresh(c, at, at_most, faults) as r;
        answer.released := answer.released + n;
        perform eve._sum_up(c.queue_id, at);
    end if;
    select r.dead, r.faults into answer.dead, faults from eve._retire(c, at, at_most, faults) as r;
    delete from eve.request as q
    where q.queue_id = c.queue_id and q.at < eve._clock(c) - c.request_retention;
    get diagnostics answer.forgotten = row_count;
    for place in
        select distinct k.lane, r.rank::smallint as rank
        from eve.work_class as k
        cross join generate_series(0, 3) as r (rank)
        where k.queue_id = c.queue_id
    loop
        perform eve._advance(c.queue_id, place.lane, place.rank);
    end loop;
    perform eve._advance_due(c.queue_id);
    perform eve._advance_slots(c.queue_id, p.pool) from eve.pool as p where p.queue_id = c.queue_id;
    if c.limited then
        perform eve._fit_keys(c.queue_id, k.class_id, false) from eve.work_class as k where k.queue_id = c.queue_id;
        answer.released := answer.released + eve._pass_keys(c, at, at_most);
        perform eve._advance_calls(c.queue_id);
        perform eve._forget_keys(c.queue_id, at_most);
    end if;
    perform eve._probe(c.queue_id);
    if alone then
        perform eve._prune(c.queue_id);
    end if;
    answer.faults := faults;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_sweep(text, integer, text) is
'Do all that is due in one transaction: recover lost leases of the three kinds, release holds, expire, look at edges again, end old quarantines, forget old request keys. Rows that fail are reported in faults and skipped. An idle queue needs one caller of this, such as pg_cron.';

create function public.eve_recover(queue text, idempotency_key text default null)
returns eve.sweep_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.sweep_answer;
    faults jsonb := '[]';
    at timestamptz;
    n integer;
    alone boolean;
begin
    c := eve._enter(queue, '{worker,operator}');
    answer := eve._sweep_replay(c, idempotency_key, 'eve_recover',
        eve._fingerprint('eve_recover', eve._text(queue)));
    if answer.faults is not null then
        return answer;
    end if;
    at := eve._clock(c);
    perform from eve.keeper as k where k.queue_id = c.queue_id for update skip locked;
    alone := found;
    select r.recovered, r.faults into answer.recovered, faults
    from eve._recover_lapsed(c, at, 10000, null, faults) as r;
    select r.recovered, r.faults into n, faults from eve._recover_orphans(c, at, faults) as r;
    answer.recovered := answer.recovered + n;
    answer.repaired := case when alone then eve._repair_slots(c) else 0 end;
    answer.faults := faults;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, to_jsonb(answer));
    end if;
    return answer;
end
$$;

comment on function public.eve_recover(text, text) is
'Recover lost leases of the three kinds, looking at every leased item: lapsed, without a lease row, superseded. Each by its own event, guarded by the lease observed.';

commit;
