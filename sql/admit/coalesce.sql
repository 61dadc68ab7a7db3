-- admit/coalesce.sql · check: a waiting item already stands for the same demand, by the rule and the key that the class declares.
begin;

create function eve._equivalent(c eve.caller, a eve.asked, standing bigint)
returns boolean
language plpgsql
stable
as $$
declare
    i eve.intent;
begin
    select x.* into i from eve.intent as x where x.queue_id = c.queue_id and x.item = standing;
    -- A merge may change neither the effects asked for nor who waits for whom, nor make anybody late.
    return a.alone and i.edges = 0 and i.parent is null
        and i.operation_identity = a.operation_identity
        and i.replay_class = a.replay_class
        and i.limit_key is not distinct from a.limit_key
        and i.completion_test = a.completion_test
        and i.expected_effects is not distinct from a.expected_effects
        and case when a.effect_named then i.effect_identity = a.effect_identity
            else 'effect_identity' = any (i.derived) end
        and case (a.policy).coalesce
            when 'absorb' then (a.deadline is null or i.deadline <= a.deadline)
                and coalesce(i.not_before <= greatest(a.at, a.not_before), true)
                and i.priority_class <= a.priority_class
            else not exists (
                select from eve.dependency as d
                where d.queue_id = i.queue_id and d.on_work_id = i.work_id and d.open)
        end is true;
end
$$;

comment on function eve._equivalent(eve.caller, eve.asked, bigint) is
'Whether a waiting item may stand for a request with its key (absorb), or the request for it (replace): same operation, effects, test and replay class, no edges; absorbing makes it neither later nor less urgent, replacing leaves nobody waiting for what ends.';

create function eve._merge(c eve.caller, a eve.asked, decided eve.decided)
returns eve.decided
language plpgsql
as $$
declare
    d eve.decided := decided;
    acting eve.acting;
    standing bigint;
begin
    for attempt in 1..3 loop
        standing := (select k.item from eve.waiting_key as k
            where k.queue_id = c.queue_id and k.class_id = a.class_id and k.key = a.coalescing_key);
        if standing is null then
            d.claimed := coalesce(d.claimed, pg_catalog.nextval('eve.item_seq'));
            if eve._claim_key(c.queue_id, a.class_id, a.coalescing_key, d.claimed) then
                return d;
            end if;
            continue;
        end if;
        -- Its door row: whoever comes for work passes it meanwhile, and whoever has it is waited for.
        acting := eve._act_on(c, standing);
        continue when (acting.state).phase not in ('held', 'ready') or not exists (
            select from eve.waiting_key as k
            where k.queue_id = c.queue_id and k.class_id = a.class_id and k.key = a.coalescing_key
                and k.item = standing);
        -- An absorbed request is no item: nobody may wait for its name, and a taken name is refused.
        if not eve._equivalent(c, a, standing) or (a.policy).coalesce = 'absorb' and (
            exists (
                select from eve.intent as i where i.queue_id = c.queue_id and i.work_id = a.work_id)
            or exists (
                select from eve.dependency as e
                where e.queue_id = c.queue_id and e.on_work_id = a.work_id and e.open)) then
            d.claimed := null;
            return d;
        end if;
        if (a.policy).coalesce = 'absorb' then
            d.decision := 'COALESCE';
            d.reason := 'equivalent_waiting';
            d.survivor := standing;
            return d;
        end if;
        d.claimed := coalesce(d.claimed, pg_catalog.nextval('eve.item_seq'));
        d.replaces := standing;
        update eve.waiting_key as k set item = d.claimed
        where k.queue_id = c.queue_id and k.class_id = a.class_id and k.key = a.coalescing_key;
        return d;
    end loop;
    perform eve._raise('40001', 'the coalescing key was taken by a concurrent transaction',
        pg_catalog.jsonb_build_object('key', a.coalescing_key), 'Repeat the transaction.');
    return d;
end
$$;

comment on function eve._merge(eve.caller, eve.asked, eve.decided) is
'Judge a request with a coalescing key: merged into the waiting item (absorb), in its stead (replace), or the first that waits for the key. Nobody who comes for work is made to wait.';

create type eve.place as (
    rank smallint,
    since timestamptz
);

comment on type eve.place is 'Where an item stands in the queue order; without since it begins now.';

create function eve._inherited(queue_id bigint, replaced bigint, rank smallint)
returns eve.place
language plpgsql
stable
as $$
declare
    p eve.place;
    s eve.state;
begin
    p.rank := _inherited.rank;
    if replaced is not null then
        s := (select w.queue_state from eve.work_item as w
            where w.queue_id = _inherited.queue_id and w.item = replaced);
        if s.rank <= p.rank then
            p.rank := s.rank;
            p.since := case when s.phase = 'ready' then s.ready_since end;
        end if;
    end if;
    return p;
end
$$;

comment on function eve._inherited(bigint, bigint, smallint) is
'The place of a request that replaces a waiting one: the more urgent rank of both and, where that is the waiting one''s, its ready_since. So a refresh is never put off by the next one, and nobody ages in a low rank to jump in a high one.';

create function eve._hand_effect(queue_id bigint, replaced bigint, item bigint)
returns boolean
language plpgsql
as $$
begin
    update eve.live_effect as e set item = _hand_effect.item
    where e.queue_id = _hand_effect.queue_id and e.item = replaced;
    return found;
end
$$;

comment on function eve._hand_effect(bigint, bigint, bigint) is
'Hand the effect identity of a waiting item to the one that replaces it, or back; false when it has none.';

create function eve._represented(queue_id bigint, item bigint)
returns jsonb
language sql
stable
begin atomic
    -- What it absorbed, and what it replaced with all that stood for.
    with recursive chain as (
        select _represented.item as item, 0 as depth
        union all
        select (l.data ->> 'replaces')::bigint, c.depth + 1
        from chain as c
        join eve.ledger as l on l.queue_id = _represented.queue_id and l.item = c.item and l.version = 1
        where l.data ? 'replaces' and c.depth < 100000
    )
    select pg_catalog.jsonb_agg(r.request order by r.depth desc, r.version)
    from (
        select c.depth, 0 as version, pg_catalog.jsonb_build_object(
            'item', c.item, 'work_id', i.work_id, 'rule', 'replace') as request
        from chain as c
        join eve.intent as i on i.queue_id = _represented.queue_id and i.item = c.item
        where c.depth > 0
        union all
        select c.depth, l.version, l.data -> 'represents'
        from chain as c
        join eve.ledger as l on l.queue_id = _represented.queue_id and l.item = c.item and l.kind = 'absorbed'
    ) as r;
end;

comment on function eve._represented(bigint, bigint) is
'The requests that an item stands for beside its own, oldest first, through any chain of replacements; null when there are none.';

commit;
