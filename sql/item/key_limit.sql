-- item/key_limit.sql · how many items of a class with one limit key are ready or leased together: tickets, taken and put back.
begin;

create table eve.key_limit (
    queue_id bigint not null,
    class_id integer not null,
    key text not null,
    tickets integer not null,
    surplus integer not null default 0,
    constraint key_limit_pkey primary key (queue_id, class_id, key),
    constraint key_limit_tickets_are_bounded check (tickets between 1 and 1024),
    constraint key_limit_surplus_is_not_negative check (surplus >= 0)
);

comment on table eve.key_limit is
'The limit keys in use, made by whoever needs one first. surplus counts the tickets that a lowered limit still waits for: as many are not put back. Free tickets, calls and the ready and leased items of the key are tickets and surplus together.';

create table eve.key_ticket (
    queue_id bigint not null,
    class_id integer not null,
    key text not null,
    seq bigint not null default nextval('eve.free_slot_seq'),
    constraint key_ticket_pkey primary key (queue_id, class_id, key, seq)
);

comment on table eve.key_ticket is
'The free tickets of a limit key: taken by deleting when an item becomes ready, put back under a fresh key by the fold when it is neither ready nor leased any more.';

create table eve.key_call (
    queue_id bigint not null,
    seq bigint not null default nextval('eve.free_slot_seq'),
    class_id integer not null,
    key text not null,
    constraint key_call_pkey primary key (queue_id, seq)
);

comment on table eve.key_call is
'Tickets that were put back while somebody waited for their key: the next acquisition of the queue gives each to the best that waits. The search starts at the exact slot mark of the empty pool.';

create function eve._limit_of(queue_id bigint, class_id integer)
returns integer
language plpgsql
stable
as $$
begin
    return (
        select (r.policy).limit_per_key from eve.class_revision as r
        where r.queue_id = _limit_of.queue_id and r.class_id = _limit_of.class_id
            and (r.policy).limit_per_key is not null
        order by r.revision desc limit 1);
end
$$;

comment on function eve._limit_of(bigint, integer) is
'The limit a key of a class: that of the newest revision that has one. Where the newest has none, new items are not limited, and those admitted before keep the last limit.';

create function eve._key_waits(queue_id bigint, class_id integer, key text)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select from eve.hold as h
        where h.queue_id = _key_waits.queue_id and h.class_id = _key_waits.class_id and h.ref = _key_waits.key);
end
$$;

comment on function eve._key_waits(bigint, integer, text) is
'Whether somebody visibly waits for a limit key.';

create function eve._key_free(queue_id bigint, class_id integer, key text)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select from eve.key_ticket as t
        where t.queue_id = _key_free.queue_id and t.class_id = _key_free.class_id and t.key = _key_free.key)
        or not exists (
            select from eve.key_limit as k
            where k.queue_id = _key_free.queue_id and k.class_id = _key_free.class_id and k.key = _key_free.key);
end
$$;

comment on function eve._key_free(bigint, integer, text) is
'Whether a ticket of a limit key can be seen, or the key is not in use.';

create function eve._saturated_key(queue_id bigint, item bigint)
returns text
language plpgsql
stable
as $$
begin
    return (
        select pg_catalog.format('limit key "%s" is saturated', h.ref) from eve.hold as h
        where h.queue_id = _saturated_key.queue_id and h.item = _saturated_key.item and h.class_id is not null);
end
$$;

comment on function eve._saturated_key(bigint, bigint) is
'That an item waits for its limit key, in words; null when it does not.';

create function eve._key_live(queue_id bigint, class_id integer, key text)
returns bigint
language plpgsql
stable
as $$
begin
    return (
        select k.tickets + k.surplus - (
            select pg_catalog.count(*) from eve.key_ticket as t
            where t.queue_id = k.queue_id and t.class_id = k.class_id and t.key = k.key
        ) - (
            select pg_catalog.count(*) from eve.key_call as t
            where t.queue_id = k.queue_id and t.class_id = k.class_id and t.key = k.key
        )
        from eve.key_limit as k
        where k.queue_id = _key_live.queue_id and k.class_id = _key_live.class_id and k.key = _key_live.key);
end
$$;

comment on function eve._key_live(bigint, integer, text) is
'How many items of a limit key are ready or leased, as its tickets say.';

create function eve._make_key(queue_id bigint, class_id integer, key text, wait boolean)
returns boolean
language plpgsql
as $$
declare
    patience text := pg_catalog.current_setting('lock_timeout');
    many integer := eve._limit_of(queue_id, class_id);
    made boolean;
begin
    if wait then
        -- A twin waits here until the first has committed or rolled back.
        insert into eve.key_limit (queue_id, class_id, key, tickets)
        values (_make_key.queue_id, _make_key.class_id, _make_key.key, many)
        on conflict on constraint key_limit_pkey do nothing;
        made := found;
    else
        -- Who is no submitter waits for none: the item is held, and looked at twice.
        begin
            perform pg_catalog.set_config('lock_timeout', '10ms', true);
            insert into eve.key_limit (queue_id, class_id, key, tickets)
            values (_make_key.queue_id, _make_key.class_id, _make_key.key, many)
            on conflict on constraint key_limit_pkey do nothing;
            made := found;
            perform pg_catalog.set_config('lock_timeout', patience, true);
        exception when lock_not_available then
            return false;
        end;
    end if;
    if made then
        insert into eve.key_ticket (queue_id, class_id, key)
        select _make_key.queue_id, _make_key.class_id, _make_key.key
        from pg_catalog.generate_series(1, many);
    end if;
    return true;
end
$$;

comment on function eve._make_key(bigint, integer, text, boolean) is
'Make a limit key with its free tickets, unless another made it; without wait false when another is about to.';

create function eve._take_ticket(queue_id bigint, class_id integer, key text, wait boolean)
returns boolean
language plpgsql
as $$
declare
    many integer;
begin
    for attempt in 1..2 loop
        loop
            many := (select k.surplus from eve.key_limit as k
                where k.queue_id = _take_ticket.queue_id and k.class_id = _take_ticket.class_id
                    and k.key = _take_ticket.key);
            if many > 0 then
                select k.surplus into many from eve.key_limit as k
                where k.queue_id = _take_ticket.queue_id and k.class_id = _take_ticket.class_id
                    and k.key = _take_ticket.key
                for update skip locked;
                if not found then
                    return false;
                end if;
            end if;
            delete from eve.key_ticket as t
            where t.queue_id = _take_ticket.queue_id and t.class_id = _take_ticket.class_id
                and t.key = _take_ticket.key and t.seq = (
                    select s.seq from eve.key_ticket as s
                    where s.queue_id = _take_ticket.queue_id and s.class_id = _take_ticket.class_id
                        and s.key = _take_ticket.key
                    order by s.seq limit 1 for update skip locked);
            exit when not found;
            if coalesce(many, 0) = 0 then
                return true;
            end if;
            -- One that a lowered limit has too many is dropped, not used.
            update eve.key_limit as k set surplus = k.surplus - 1
            where k.queue_id = _take_ticket.queue_id and k.class_id = _take_ticket.class_id
                and k.key = _take_ticket.key;
        end loop;
        exit when attempt = 2 or many is not null;
        if not eve._make_key(queue_id, class_id, key, wait) then
            return false;
        end if;
    end loop;
    return false;
end
$$;

comment on function eve._take_ticket(bigint, integer, text, boolean) is
'Take a ticket of a limit key for an item that becomes ready: never more than the limit, at every isolation level. Tickets that others lock are passed.';

create function eve._free_ticket(queue_id bigint, class_id integer, key text)
returns void
language plpgsql
as $$
begin
    perform from eve.key_limit as k
    where k.queue_id = _free_ticket.queue_id and k.class_id = _free_ticket.class_id and k.key = _free_ticket.key
        and k.surplus > 0
    for update skip locked;
    if found then
        update eve.key_limit as k set surplus = k.surplus - 1
        where k.queue_id = _free_ticket.queue_id and k.class_id = _free_ticket.class_id
            and k.key = _free_ticket.key and k.surplus > 0;
        if found then
            return;
        end if;
    end if;
    -- An old snapshot does not see who waits: there the next acquisition finds out.
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed'
        or eve._key_waits(queue_id, class_id, key) then
        insert into eve.key_call (queue_id, class_id, key)
        values (_free_ticket.queue_id, _free_ticket.class_id, _free_ticket.key);
    else
        insert into eve.key_ticket (queue_id, class_id, key)
        values (_free_ticket.queue_id, _free_ticket.class_id, _free_ticket.key);
    end if;
end
$$;

comment on function eve._free_ticket(bigint, integer, text) is
'Put a ticket back: free, or as a call where somebody visibly waits, or not at all where the limit was lowered.';

create function eve._put_ticket(queue_id bigint, item bigint, class_id integer)
returns void
language plpgsql
as $$
begin
    perform eve._free_ticket(queue_id, class_id, (
        select i.limit_key from eve.intent as i
        where i.queue_id = _put_ticket.queue_id and i.item = _put_ticket.item));
end
$$;

comment on function eve._put_ticket(bigint, bigint, integer) is
'Put back the ticket of an item that is neither ready nor leased any more. Called by the fold.';

create function eve._limit_holds(queue_id bigint, class_id integer, key text, place timestamptz, wait boolean)
returns jsonb
language plpgsql
as $$
begin
    if eve._take_ticket(queue_id, class_id, key, wait) then
        return '[]';
    end if;
    return pg_catalog.jsonb_build_array(eve._hold_json('key_saturated', key, null, null)
        || pg_catalog.jsonb_build_object('place', eve._utc(place)));
end
$$;

comment on function eve._limit_holds(bigint, integer, text, timestamptz, boolean) is
'Take a ticket of a limit key: an empty hold set, or the hold of an item that found none, with its place in the order.';

create function eve._ticket_holds(queue_id bigint, item bigint, place timestamptz)
returns jsonb
language plpgsql
as $$
declare
    i record;
begin
    select x.class_id, x.limit_key, x.limited into strict i from eve.intent as x
    where x.queue_id = _ticket_holds.queue_id and x.item = _ticket_holds.item;
    if not i.limited then
        return '[]';
    end if;
    return eve._limit_holds(queue_id, i.class_id, i.limit_key, place, false);
end
$$;

comment on function eve._ticket_holds(bigint, bigint, timestamptz) is
'What keeps an item that may run from being ready: nothing, or that its limit key is saturated. Takes its ticket.';

create function eve._fit_keys(queue_id bigint, class_id integer, wait boolean)
returns void
language plpgsql
as $$
declare
    many integer := eve._limit_of(queue_id, class_id);
    k record;
    more integer;
    dropped integer;
    called integer;
begin
    if wait then
        perform from eve.key_limit as x
        where x.queue_id = _fit_keys.queue_id and x.class_id = _fit_keys.class_id and x.tickets <> many
        order by x.key for update;
    end if;
    for k in
        select x.key, x.tickets, x.surplus from eve.key_limit as x
        where x.queue_id = _fit_keys.queue_id and x.class_id = _fit_keys.class_id and x.tickets <> many
        order by x.key for update skip locked
    loop
        more := many - k.tickets;
        dropped := 0;
        if more < 0 then
            -- Free tickets go at once, the rest as they are put back.
            delete from eve.key_ticket as t
            where t.queue_id = _fit_keys.queue_id and t.class_id = _fit_keys.class_id and t.key = k.key
                and t.seq = any (array(
                    select s.seq from eve.key_ticket as s
                    where s.queue_id = _fit_keys.queue_id and s.class_id = _fit_keys.class_id and s.key = k.key
                    limit -more for update skip locked));
            get diagnostics dropped = row_count;
        end if;
        update eve.key_limit as x set tickets = many, surplus = greatest(0, k.surplus - more - dropped)
        where x.queue_id = _fit_keys.queue_id and x.class_id = _fit_keys.class_id and x.key = k.key;
        more := more - k.surplus;
        if more > 0 then
            with waiting as (
                select from eve.hold as h
                where h.queue_id = _fit_keys.queue_id and h.class_id = _fit_keys.class_id and h.ref = k.key
                limit more
            )
            insert into eve.key_call (queue_id, class_id, key)
            select _fit_keys.queue_id, _fit_keys.class_id, k.key from waiting;
            get diagnostics called = row_count;
            insert into eve.key_ticket (queue_id, class_id, key)
            select _fit_keys.queue_id, _fit_keys.class_id, k.key
            from pg_catalog.generate_series(1, more - called);
        end if;
    end loop;
end
$$;

comment on function eve._fit_keys(bigint, integer, boolean) is
'Give the keys of a class the tickets of its present limit. Fewer than before: no lease ends, and none begins until few enough are left. Without wait keys that others lock are left for the next sweep.';

create function eve._forget_keys(queue_id bigint, at_most integer)
returns integer
language plpgsql
as $$
declare
    idle record;
    free bigint[];
    forgotten integer := 0;
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        return 0;
    end if;
    for idle in
        select k.class_id, k.key, k.tickets from eve.key_limit as k
        where k.queue_id = _forget_keys.queue_id and k.surplus = 0 and k.tickets = (
            select pg_catalog.count(*) from eve.key_ticket as t
            where t.queue_id = k.queue_id and t.class_id = k.class_id and t.key = k.key)
        limit at_most for update skip locked
    loop
        -- Who is taking one has it locked: then the key is not idle. Who waits unseen makes the key anew.
        free := array(
            select t.seq from eve.key_ticket as t
            where t.queue_id = _forget_keys.queue_id and t.class_id = idle.class_id and t.key = idle.key
            for update skip locked);
        continue when pg_catalog.cardinality(free) <> idle.tickets
            or eve._key_waits(queue_id, idle.class_id, idle.key);
        delete from eve.key_ticket as t
        where t.queue_id = _forget_keys.queue_id and t.class_id = idle.class_id and t.key = idle.key
            and t.seq = any (free);
        delete from eve.key_limit as k
        where k.queue_id = _forget_keys.queue_id and k.class_id = idle.class_id and k.key = idle.key;
        forgotten := forgotten + 1;
    end loop;
    return forgotten;
end
$$;

comment on function eve._forget_keys(bigint, integer) is
'Drop limit keys of which every ticket is free and for which nobody visibly waits.';

create function eve._keys(queue_id bigint)
returns table (class_id integer, key text, live bigint)
language sql
stable
begin atomic
    select i.class_id, i.limit_key, pg_catalog.count(*)
    from eve.intent as i
    join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item
    where i.queue_id = _keys.queue_id and i.limited and (w.queue_state).phase in ('ready', 'leased')
    group by i.class_id, i.limit_key;
end;

comment on function eve._keys(bigint) is
'What states say of limit keys: how many items of each are ready or leased.';

create function eve._audit_keys(queue_id bigint)
returns jsonb
language plpgsql
stable
as $$
begin
    return (
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
            'fault', 'limit', 'class', n.name, 'key', n.key, 'tickets', n.tickets, 'free', n.free, 'live', n.live))
            order by n.name, n.key)
        from (
            select c.name, f.key, pg_catalog.sum(f.tickets) as tickets, pg_catalog.sum(f.free) as free,
                pg_catalog.sum(f.live) as live
            from (
                select k.class_id, k.key, k.tickets + k.surplus as tickets, 0 as free, 0 as live
                from eve.key_limit as k where k.queue_id = _audit_keys.queue_id
                union all
                select t.class_id, t.key, 0, 1, 0 from eve.key_ticket as t where t.queue_id = _audit_keys.queue_id
                union all
                select t.class_id, t.key, 0, 1, 0 from eve.key_call as t where t.queue_id = _audit_keys.queue_id
                union all
                select s.class_id, s.key, 0, 0, s.live from eve._keys(_audit_keys.queue_id) as s
            ) as f
            join eve.work_class as c on c.queue_id = _audit_keys.queue_id and c.class_id = f.class_id
            group by c.name, f.key
            having pg_catalog.sum(f.tickets) <> pg_catalog.sum(f.free) + pg_catalog.sum(f.live)
            limit 100
        ) as n);
end
$$;

comment on function eve._audit_keys(bigint) is
'The limit keys whose tickets do not account for their free ones, their calls and their ready and leased items; null when all do.';

create function eve._rebuild_keys(queue_id bigint)
returns void
language plpgsql
as $$
begin
    delete from eve.key_call as x where x.queue_id = _rebuild_keys.queue_id;
    delete from eve.key_ticket as x where x.queue_id = _rebuild_keys.queue_id;
    delete from eve.key_limit as x where x.queue_id = _rebuild_keys.queue_id;
    insert into eve.key_limit (queue_id, class_id, key, tickets, surplus)
    select _rebuild_keys.queue_id, s.class_id, s.key, n.tickets, greatest(0, s.live - n.tickets)
    from eve._keys(_rebuild_keys.queue_id) as s
    cross join lateral eve._limit_of(_rebuild_keys.queue_id, s.class_id) as n (tickets);
    insert into eve.key_ticket (queue_id, class_id, key)
    select _rebuild_keys.queue_id, s.class_id, s.key
    from eve._keys(_rebuild_keys.queue_id) as s
    cross join lateral eve._limit_of(_rebuild_keys.queue_id, s.class_id) as n (tickets)
    cross join lateral pg_catalog.generate_series(1, n.tickets - s.live);
end
$$;

comment on function eve._rebuild_keys(bigint) is
'Make limit keys and tickets anew from the states. Who waits is looked at twice.';

create function eve._advance_calls(queue_id bigint)
returns void
language plpgsql
as $$
begin
    insert into eve.slot_mark (queue_id, pool, exact, seq)
    select _advance_calls.queue_id, '', true, n.seq
    from (
        select b.seq from eve.probe as b
        where b.queue_id = _advance_calls.queue_id and eve._settled(b.xmin)
        order by b.xid desc limit 1
    ) as p
    cross join lateral (select eve._slot_mark(_advance_calls.queue_id, '', true) as was) as o
    cross join lateral (
        select coalesce((
            select f.seq from eve.key_call as f
            where f.queue_id = _advance_calls.queue_id and f.seq >= o.was and f.seq < p.seq
            order by f.seq limit 1), p.seq) as seq
    ) as n
    where n.seq > o.was
    on conflict on constraint slot_mark_pkey do nothing;
end
$$;

comment on function eve._advance_calls(bigint) is
'Move the mark of the calls of a queue up to the first visible one, as far as the newest settled probe allows.';

commit;
