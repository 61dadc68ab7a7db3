-- acquire/pass_key.sql · a ticket that was put back goes to the best that waits for its limit key. Appends: released, expired.
begin;

create function eve._pass_key(c eve.caller, class_id integer, key text, at timestamptz)
returns boolean
language plpgsql
as $$
declare
    best record;
    -- As in eve._pick: only heads are compared, and a cursor passes what others hold.
    cursor_place timestamptz[];
    cursor_item bigint[];
    why text;
    given eve.appended;
begin
    for attempt in 1..16 loop
        select h.* into best
        from pg_catalog.generate_series(0, 3) as n (rank)
        cross join lateral (
            select x.item, x.rank, x.place from eve.hold as x
            where x.queue_id = c.queue_id and x.class_id = _pass_key.class_id and x.ref = _pass_key.key
                and x.rank = n.rank::smallint
                and (x.place, x.item) > (
                    coalesce(cursor_place[n.rank + 1], '-infinity'), coalesce(cursor_item[n.rank + 1], 0))
            order by x.place, x.item limit 1
        ) as h
        order by eve._effective_rank(h.rank, h.place, c.aging_interval, _pass_key.at), h.place, h.item
        limit 1;
        exit when best.item is null;
        cursor_place[best.rank + 1] := best.place;
        cursor_item[best.rank + 1] := best.item;
        continue when not eve._lock_holds(c, best.item, false);
        -- It may have come to wait for something else before it was locked.
        continue when not exists (
            select from eve.hold as h
            where h.queue_id = c.queue_id and h.item = best.item and h.class_id = _pass_key.class_id
                and h.ref = _pass_key.key)
            or exists (
                select from eve.hold as h
                where h.queue_id = c.queue_id and h.item = best.item and h.class_id is null);
        why := eve._hopeless(c.queue_id, best.item, at);
        if why is not null then
            -- What waited too long is not given to anybody.
            perform eve._expire_one(c, best.item, at, why);
            continue;
        end if;
        given := eve._settle_holds(c, best.item, at, '[]', 'key ' || key, best.place, ticket => true);
        if given.version is not null then
            return true;
        end if;
    end loop;
    return false;
end
$$;

comment on function eve._pass_key(eve.caller, integer, text, timestamptz) is
'Release the best that waits for a limit key, by effective rank and place; false when nobody does who is not locked by another. The caller has a ticket, which is the item''s then.';

create function eve._pass_keys(c eve.caller, at timestamptz, at_most integer)
returns integer
language plpgsql
as $$
declare
    called record;
    passed integer := 0;
    read_committed boolean := pg_catalog.current_setting('transaction_isolation') = 'read committed';
begin
    for called in
        select k.seq, k.class_id, k.key from eve.key_call as k
        where k.queue_id = c.queue_id and k.seq >= eve._slot_mark(c.queue_id, '', true)
        order by k.seq limit at_most for update skip locked
    loop
        update eve.key_limit as k set surplus = k.surplus - 1
        where k.queue_id = c.queue_id and k.class_id = called.class_id and k.key = called.key and k.surplus > 0
            and k.key = (
                select x.key from eve.key_limit as x
                where x.queue_id = c.queue_id and x.class_id = called.class_id and x.key = called.key
                    and x.surplus > 0
                for update skip locked);
        if not found then
            if eve._pass_key(c, called.class_id, called.key, at) then
                passed := passed + 1;
            elsif read_committed and not eve._key_waits(c.queue_id, called.class_id, called.key) then
                insert into eve.key_ticket (queue_id, class_id, key)
                values (c.queue_id, called.class_id, called.key);
            else
                -- Whoever waits is locked by another: the call stands.
                continue;
            end if;
        end if;
        delete from eve.key_call as k where k.queue_id = c.queue_id and k.seq = called.seq;
    end loop;
    if passed > 0 then
        -- What was released here is locked until this transaction ends.
        perform eve._bound_idle(interval '15 min');
    end if;
    return passed;
end
$$;

comment on function eve._pass_keys(eve.caller, timestamptz, integer) is
'Answer the first calls of limit keys: each ticket goes to the best that waits, or is free again when nobody does. Nobody is waited for.';

commit;
