-- item/release.sql · holds are released by what they name. Appends: held, released.
begin;

create function eve._utc(at timestamptz)
returns text
language sql
stable
return pg_catalog.to_char(_utc.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');

comment on function eve._utc(timestamptz) is
'An instant as text that no setting of a session changes: what is hashed is the same whoever wrote it.';

create function eve._span(span interval)
returns text
language sql
immutable
return case
    when _span.span < interval '0' then '-' || pg_catalog.rtrim(pg_catalog.rtrim(
        pg_catalog.to_char(-_span.span, 'HH24:MI:SS.US'), '0'), '.')
    when _span.span is not null then pg_catalog.concat(
        nullif(extract(year from _span.span) * 12 + extract(month from _span.span), 0)::integer || ' mons ',
        nullif(extract(day from _span.span), 0)::integer || ' days ',
        pg_catalog.rtrim(pg_catalog.rtrim(pg_catalog.to_char(_span.span, 'HH24:MI:SS.US'), '0'), '.'))
end;

comment on function eve._span(interval) is
'An interval as text that no setting of a session changes, as PostgreSQL reads it.';

create function eve._hold_json(reason text, ref text, owner text, due_at timestamptz)
returns jsonb
language sql
stable
return (
    select pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'reason', r.reason,
        'ref', nullif(_hold_json.ref, ''),
        'owner', coalesce(_hold_json.owner, r.owner),
        'trigger', r.trigger,
        'due_at', eve._utc(_hold_json.due_at)))
    from eve.reason as r
    where r.decision = 'HOLD' and r.reason = _hold_json.reason
);

comment on function eve._hold_json(text, text, text, timestamptz) is
'One element of a hold set, its owner and trigger from the vocabulary where none is given.';

create function eve._lock_holds(c eve.caller, item bigint, wait boolean)
returns boolean
language plpgsql
as $$
declare
    present bigint;
    locked bigint;
begin
    if wait then
        perform from eve.hold as h
        where h.queue_id = c.queue_id and h.item = _lock_holds.item
        order by h.reason, h.ref for update;
        return found;
    end if;
    select pg_catalog.count(*) into present from eve.hold as h
    where h.queue_id = c.queue_id and h.item = _lock_holds.item;
    select pg_catalog.count(*) into locked from (
        select from eve.hold as h
        where h.queue_id = c.queue_id and h.item = _lock_holds.item
        order by h.reason, h.ref for update skip locked
    ) as l;
    return present > 0 and present = locked;
end
$$;

comment on function eve._lock_holds(eve.caller, bigint, boolean) is
'Lock the door rows of a waiting item; without wait false when another transaction holds one.';

create function eve._settle_holds(
    c eve.caller,
    item bigint,
    at timestamptz,
    holds jsonb,
    fired text,
    since timestamptz,
    pass boolean default true,
    ticket boolean default false
)
returns eve.appended
language plpgsql
as $$
declare
    s eve.state;
    stored record;
    why text;
    place timestamptz;
    lacks jsonb := '[]';
    appended eve.appended;
begin
    select w.queue_state as state, w.class_id, w.limited into stored from eve.work_item as w
    where w.queue_id = c.queue_id and w.item = _settle_holds.item;
    s := stored.state;
    if s.phase is distinct from 'held' then
        return null;
    end if;
    if pg_catalog.jsonb_array_length(holds) = 0 then
        why := eve._hopeless(c.queue_id, item, at);
        if why is not null then
            -- What waited too long is not given to anybody.
            appended := eve._append(c, item, 'expired', at, phase => 'expired', reason => why,
                data => pg_catalog.jsonb_build_object('fired', fired));
            if ticket and stored.limited then
                perform eve._put_ticket(c.queue_id, item, stored.class_id);
            end if;
            perform eve._close_edges(c, item, 'expired', at, pass);
            return appended;
        end if;
        if stored.limited and since is null then
            since := (select h.place from eve.hold as h
                where h.queue_id = c.queue_id and h.item = _settle_holds.item and h.class_id is not null);
        end if;
        -- What was leased before keeps its place in the order.
        place := least(at, case when s.attempts > 0 then coalesce(s.ready_since, since) else since end);
        if stored.limited and not ticket then
            lacks := eve._ticket_holds(c.queue_id, item, place);
        end if;
        if lacks = '[]' then
            return eve._append(c, item, 'released', at, due_at => place, reason => fired);
        elsif eve._holds(c.queue_id, item) @> '[{"trigger": "key"}]' then
            return null;
        end if;
        holds := lacks;
    end if;
    return eve._append(c, item, 'held', at,
        reason => holds -> 0 ->> 'reason',
        data => pg_catalog.jsonb_build_object('holds', holds, 'fired', fired));
end
$$;

comment on function eve._settle_holds(eve.caller, bigint, timestamptz, jsonb, text, timestamptz, boolean, boolean) is
'Give a waiting item its new hold set: released when it is empty and its limit key has a ticket (with ticket the caller has one for it), held with what is left. The caller holds the item''s hold rows.';

create function eve._holds(queue_id bigint, item bigint)
returns jsonb
language sql
stable
begin atomic
    select coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'reason', h.reason, 'ref', nullif(h.ref, ''), 'owner', h.owner, 'trigger', h.trigger,
        'due_at', eve._utc(h.due_at), 'place', eve._utc(h.place))) order by h.reason, h.ref), '[]')
    from eve.hold as h
    where h.queue_id = _holds.queue_id and h.item = _holds.item;
end;

comment on function eve._holds(bigint, bigint) is 'The hold set of an item as JSON.';

create function eve._edge_holds(c eve.caller, item bigint, walk boolean default true)
returns jsonb
language plpgsql
stable
as $$
declare
    edges record;
    holds jsonb := '[]';
begin
    select
        pg_catalog.count(*) filter (where d.on_item is null) as unknown,
        pg_catalog.count(*) filter (where d.on_item is not null) as open
    into edges
    from eve.dependency as d
    where d.queue_id = c.queue_id and d.item = _edge_holds.item and d.open;
    if edges.unknown > 0 then
        holds := holds || eve._hold_json('unknown_dependency', null, null, null);
    end if;
    if edges.open > 0 then
        if walk and eve._cycle(c.queue_id, item) is not null then
            holds := holds || eve._hold_json('dependency_cycle', null, null, null);
        end if;
        holds := holds || eve._hold_json('dependency_not_ready', null, null, null);
    end if;
    return holds;
end
$$;

comment on function eve._edge_holds(eve.caller, bigint, boolean) is
'The dependency reasons of an item, derived anew from its edges; without walk it is known to be in no cycle.';

create function eve._stale(queue_id bigint, items bigint[], at timestamptz)
returns bigint[]
language plpgsql
stable
as $$
begin
    return array(
        select h.item
        from pg_catalog.unnest(items) as u (item)
        join eve.hold as h on h.queue_id = _stale.queue_id and h.item = u.item
        where case h.trigger
            when 'dependency' then h.reason = 'dependency_cycle' and eve._cycle(h.queue_id, h.item) is null
            or not exists (
                select from eve.dependency as d
                where d.queue_id = h.queue_id and d.item = h.item and d.open)
            or exists (
                select from eve.dependency as d
                left join eve.work_item as p on p.queue_id = d.queue_id and p.item = d.on_item
                where d.queue_id = h.queue_id and d.item = h.item and d.open
                    and case when d.on_item is null then exists (
                            select from eve.intent as i
                            where i.queue_id = d.queue_id and i.work_id = d.on_work_id)
                        else eve._closes((p.queue_state).phase, d.needs) end)
            when 'decision' then not eve._undecided(h.queue_id, h.ref)
            when 'time' then false
            else not eve._persists(h.queue_id, h.item, h.reason, h.trigger, h.ref, _stale.at)
        end
        group by h.item order by h.item);
end
$$;

comment on function eve._stale(bigint, bigint[], timestamptz) is
'Those of the items whose hold set no longer says what their edges, decisions and policies say.';

create function eve._closes(phase text, needs text)
returns boolean
language sql
immutable
return coalesce(
    phase = 'verified'
    or needs = 'ended' and phase in ('rejected', 'expired', 'cancelled', 'coalesced', 'dead'), false);

comment on function eve._closes(text, text) is
'Whether an item in a phase closes an edge that needs it verified, or only ended.';

create function eve._undecided(queue_id bigint, ref text)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select from eve.decision as d
        where d.queue_id = _undecided.queue_id and d.decision = ref::bigint and d.phase = 'open');
end
$$;

comment on function eve._undecided(bigint, text) is 'Whether a hold''s decision is still open.';

create function eve._unanswered(queue_id bigint, item bigint, reason text)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select
        from eve.work_item as w
        join eve.intent as i on i.queue_id = w.queue_id and i.item = w.item
        join eve.work_class as k on k.queue_id = w.queue_id and k.class_id = w.class_id
        join eve.class_revision as r
            on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
        where w.queue_id = _unanswered.queue_id and w.item = _unanswered.item
            and case _unanswered.reason
                -- An item may be vague though its class is not: then the next revision answers.
                when 'replay_class_unknown' then (r.policy).replay_class = 'unknown'
                    or k.revision = (w.queue_state).revision
                when 'class_not_authorised' then i.principal <> all ((r.policy).submitters)
                when 'payload_invalid' then i.payload_size > (r.policy).payload_limit
                    or coalesce(eve._payload_now(w.queue_id, w.item) ->> 'verdict', '') in ('invalid', 'unavailable')
                else true
            end);
end
$$;

comment on function eve._unanswered(bigint, bigint, text) is
'Whether the present policy of an item''s class still gives the reason for which it waits.';

create function eve._class_of(queue_id bigint, item bigint)
returns text
language sql
stable
begin atomic
    select k.name from eve.work_item as w
    join eve.work_class as k on k.queue_id = w.queue_id and k.class_id = w.class_id
    where w.queue_id = _class_of.queue_id and w.item = _class_of.item;
end;

comment on function eve._class_of(bigint, bigint) is 'The name of an item''s class.';

create function eve._persists(queue_id bigint, item bigint, reason text, trigger text, ref text, at timestamptz)
returns boolean
language plpgsql
stable
as $$
declare
    w eve.work_item;
    i eve.intent;
    policy eve.policy;
begin
    case trigger
        when 'policy' then return eve._unanswered(queue_id, item, reason);
        when 'validator' then return not eve._validator();
        when 'effect' then return not eve._effect_free(queue_id, ref, item) and not eve._effect_seen(queue_id, ref);
        when 'key' then return not eve._key_free(queue_id, (
            select x.class_id from eve.work_item as x
            where x.queue_id = _persists.queue_id and x.item = _persists.item), ref);
        when 'observation', 'health' then
            select x.* into w from eve.work_item as x
            where x.queue_id = _persists.queue_id and x.item = _persists.item;
            policy := eve._policy(queue_id, w.class_id, (w.queue_state).revision);
        else return true;
    end case;
    if trigger = 'health' or ref <> eve._class_of(queue_id, item) then
        -- Told of a dependency; the class may have stopped needing it.
        return ref = any (policy.dependencies)
            and eve._health_reason(policy, eve._health(queue_id, ref, at, false)) is not null;
    elsif reason = 'age_budget_exceeded' then
        return coalesce(at - eve._oldest_eligible(queue_id, w.class_id) > policy.age_limit, false);
    end if;
    select x.* into i from eve.intent as x where x.queue_id = _persists.queue_id and x.item = _persists.item;
    return eve._judge_capacity(ref, policy, eve._capacity(queue_id, w.class_id, at),
        case when policy.evidence = 'limit'
            then (select eve._stored(t) - 1 from eve._total(_persists.queue_id, w.class_id, _persists.at, false) as t)
        end, i.deadline) is not null;
end
$$;

comment on function eve._persists(bigint, bigint, text, text, text, timestamptz) is
'Whether what a hold names still stands: the policy, the validator, the observation, the health, the other live item, the saturated key.';

create function eve._hopeless(queue_id bigint, item bigint, at timestamptz)
returns text
language plpgsql
stable
as $$
declare
    i record;
    policy eve.policy;
begin
    select x.deadline, x.value_until, x.not_before, x.minimum_completion_margin as margin, w.class_id,
        (w.queue_state).revision, (w.queue_state).effect_started
    into i
    from eve.intent as x
    join eve.work_item as w on w.queue_id = x.queue_id and w.item = x.item
    where x.queue_id = _hopeless.queue_id and x.item = _hopeless.item;
    if i.effect_started or i.deadline is null and i.value_until is null then
        return null;
    end if;
    policy := eve._policy(queue_id, i.class_id, i.revision);
    return case
        when policy.evidence <> 'none' and at < i.deadline and eve._infeasible(greatest(at, i.not_before),
            eve._capacity(queue_id, i.class_id, at), greatest(i.margin, policy.completion_margin), i.deadline)
            then 'deadline_infeasible'
        when at + greatest(i.margin, policy.completion_margin) >= i.deadline then 'deadline_passed'
        when at >= i.value_until then 'value_window_ended'
    end;
end
$$;

comment on function eve._hopeless(bigint, bigint, timestamptz) is
'Why a waiting item can no longer be useful: its deadline or value window is over, or fresh evidence says that it cannot be met.';

create function eve._rederive(c eve.caller, item bigint, at timestamptz, fired text, pass boolean default true)
returns boolean
language plpgsql
as $$
declare
    was jsonb;
    kept jsonb;
    holds jsonb;
    declined bigint;
    spend boolean;
    s eve.state;
    effect text;
    free boolean := false;
    why text;
begin
    -- The caller holds the hold rows. Names that became known and parents that ended meanwhile come first.
    update eve.dependency as d set on_item = i.item
    from eve.intent as i
    where d.queue_id = c.queue_id and d.item = _rederive.item and d.open and d.on_item is null
        and i.queue_id = d.queue_id and i.work_id = d.on_work_id;
    update eve.dependency as d set open = false
    from eve.work_item as p
    where d.queue_id = c.queue_id and d.item = _rederive.item and d.open
        and p.queue_id = d.queue_id and p.item = d.on_item
        and eve._closes((p.queue_state).phase, d.needs);
    was := eve._holds(c.queue_id, item);
    -- What a holder gave back to wait for an answer gets the answer; what never ran and was declined does not run.
    select d.decision, eve._more_spend(d.kind, d.subject) into declined, spend
    from pg_catalog.jsonb_array_elements(was) as h (value)
    join eve.decision as d on d.queue_id = c.queue_id and d.decision::text = h.value ->> 'ref'
    join eve.work_item as w on w.queue_id = c.queue_id and w.item = _rederive.item
    where h.value ->> 'trigger' = 'decision' and d.phase = 'declined'
        and ((w.queue_state).attempts = 0 or eve._more_spend(d.kind, d.subject))
    limit 1;
    if found and spend then
        s := (select w.queue_state from eve.work_item as w
            where w.queue_id = c.queue_id and w.item = _rederive.item);
        perform eve._append(c, item, 'parked', at, reason => 'spend declined',
            data => pg_catalog.jsonb_build_object('fired', fired,
                'quarantine', eve._quarantine_record(c, item, s, 'spend declined', at)));
        return true;
    elsif found then
        perform eve._append(c, item, 'cancelled', at, reason => 'decision ' || declined || ' declined');
        perform eve._close_edges(c, item, 'cancelled', at);
        return true;
    end if;
    if was @> '[{"trigger": "effect"}]' then
        select h.value ->> 'ref' into effect
        from pg_catalog.jsonb_array_elements(was) as h (value) where h.value ->> 'trigger' = 'effect';
        if eve._effect_seen(c.queue_id, effect) then
            -- It was never given to anybody, and there is nothing left to do.
            perform eve._append(c, item, 'cancelled', at, reason => 'effect_already_observed',
                data => pg_catalog.jsonb_build_object('fired', fired, 'effect', effect));
            perform eve._close_edges(c, item, 'cancelled', at, pass);
            return true;
        end if;
        free := eve._take_effect(c.queue_id, effect, item);
    end if;
    select coalesce(pg_catalog.jsonb_agg(h.value), '[]') into kept
    from pg_catalog.jsonb_array_elements(was) as h (value)
    where case h.value ->> 'trigger'
        when 'dependency' then false
        when 'effect' then not free
        when 'decision' then eve._undecided(c.queue_id, h.value ->> 'ref')
        else eve._persists(c.queue_id, _rederive.item, h.value ->> 'reason', h.value ->> 'trigger',
            coalesce(h.value ->> 'ref', ''), _rederive.at)
    end;
    holds := kept || eve._edge_holds(c, item);
    if was @> '[{"trigger": "validator"}]' and not holds @> '[{"trigger": "validator"}]'
        and eve._payload_now(c.queue_id, item) ->> 'verdict' = 'invalid' then
        holds := holds || eve._hold_json('payload_invalid', eve._class_of(c.queue_id, item), null, null);
    end if;
    if was @> '[{"trigger": "observation"}]' then
        why := eve._hopeless(c.queue_id, item, at);
        if why is not null then
            perform eve._append(c, item, 'expired', at, phase => 'expired', reason => why,
                data => pg_catalog.jsonb_build_object(
                    'fired', fired, 'evidence', eve._observation_json(c.queue_id, item)));
            perform eve._close_edges(c, item, 'expired', at);
            return true;
        end if;
    end if;
    update eve.hold as h
    set open_edges = (
        select pg_catalog.count(*) from eve.dependency as d
        where d.queue_id = c.queue_id and d.item = _rederive.item and d.open)
    where h.queue_id = c.queue_id and h.item = _rederive.item and h.reason = 'dependency_not_ready';
    if exists (
        select h.value ->> 'reason', h.value ->> 'ref' from pg_catalog.jsonb_array_elements(was) as h (value)
        except
        select h.value ->> 'reason', h.value ->> 'ref' from pg_catalog.jsonb_array_elements(holds) as h (value)
    ) or pg_catalog.jsonb_array_length(was) <> pg_catalog.jsonb_array_length(holds) then
        return (eve._settle_holds(c, item, at, holds, fired, null, pass)).version is not null;
    end if;
    return false;
end
$$;

comment on function eve._rederive(eve.caller, bigint, timestamptz, text, boolean) is
'Derive anew what a waiting item waits for from its edges, decisions and policy: released when nothing is left, cancelled when its decision was declined before it ever ran, quarantined when more spend was declined, or when the effect it waited to cause was observed. The caller holds its hold rows, and without pass gives on the effect of an item that ends.';

create function eve._rederive_named(c eve.caller, names text[], at timestamptz, fired text)
returns void
language plpgsql
as $$
declare
    member bigint;
begin
    for member in
        select i.item from eve.intent as i
        where i.queue_id = c.queue_id and i.work_id = any (names)
        order by i.item
    loop
        if eve._lock_holds(c, member, true) then
            perform eve._rederive(c, member, at, fired);
        end if;
    end loop;
end
$$;

comment on function eve._rederive_named(eve.caller, text[], timestamptz, text) is
'Derive anew for what the named items wait: the members of a cycle that was closed or opened.';

create function eve._close_edges(c eve.caller, item bigint, phase text, at timestamptz, pass boolean default true)
returns integer
language plpgsql
as $$
declare
    child record;
    left_open integer;
    released integer := 0;
    effect text;
begin
    for child in
        select d.item
        from eve.dependency as d
        where d.queue_id = c.queue_id and d.on_item = _close_edges.item and d.open
            and eve._closes(_close_edges.phase, d.needs)
        order by d.item
    loop
        -- The child's door first, as everybody else does.
        perform eve._lock_holds(c, child.item, true);
        update eve.dependency as d set open = false
        where d.queue_id = c.queue_id and d.item = child.item and d.on_item = _close_edges.item and d.open;
        -- An update, never a mere lock: above READ COMMITTED the second of two last parents gets 40001.
        update eve.hold as h set open_edges = h.open_edges - 1
        where h.queue_id = c.queue_id and h.item = child.item and h.reason = 'dependency_not_ready'
        returning h.open_edges into left_open;
        -- Edges to unknown names are another reason, and may be all that is left.
        if found and (left_open <= 0 or not exists (
            select from eve.dependency as d
            where d.queue_id = c.queue_id and d.item = child.item and d.open and d.on_item is not null)) then
            if eve._rederive(c, child.item, at, 'dependency_ready') then
                released := released + 1;
            end if;
        end if;
    end loop;
    if pass and (select w.effect_unique from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = _close_edges.item) then
        effect := (select i.effect_identity from eve.intent as i
            where i.queue_id = c.queue_id and i.item = _close_edges.item);
    end if;
    if effect is not null then
        released := released + eve._pass_effect(c, effect, at);
    end if;
    return released;
end
$$;

comment on function eve._close_edges(eve.caller, bigint, text, timestamptz, boolean) is
'Close the edges that wait for an item which was verified or ended, children in item order, releasing those with nothing left to wait for; then pass its effect on, unless the caller does.';

create function eve._pass_effect(c eve.caller, effect_identity text, at timestamptz)
returns integer
language plpgsql
as $$
declare
    waiting bigint;
    released integer := 0;
begin
    for waiting in
        select h.item from eve.hold as h
        where h.queue_id = c.queue_id and h.trigger = 'effect' and h.ref = _pass_effect.effect_identity
        order by h.item
    loop
        -- The first takes it; where it was observed all end. Who is missed here is looked at twice.
        exit when not eve._effect_free(c.queue_id, effect_identity, 0);
        if eve._lock_holds(c, waiting, true)
            and eve._rederive(c, waiting, at, 'effect ' || effect_identity, false) then
            released := released + 1;
        end if;
    end loop;
    return released;
end
$$;

comment on function eve._pass_effect(eve.caller, text, timestamptz) is
'Give a freed effect to the first item that waits for it, or end all that wait where it was observed.';

create function eve._lock_children(c eve.caller, items bigint[], wait boolean)
returns boolean
language plpgsql
as $$
declare
    child bigint;
begin
    if wait then
        perform from eve.hold as h
        where h.queue_id = c.queue_id and h.item in (
            select d.item from eve.dependency as d
            where d.queue_id = c.queue_id and d.on_item = any (items) and d.open
            union all
            select x.item
            from eve.intent as i
            join eve.hold as x on x.queue_id = i.queue_id and x.trigger = 'effect' and x.ref = i.effect_identity
            where i.queue_id = c.queue_id and i.item = any (items) and i.effect_unique)
        order by h.item, h.reason, h.ref for update;
        return true;
    end if;
    for child in
        select distinct h.item
        from eve.dependency as d
        join eve.hold as h on h.queue_id = d.queue_id and h.item = d.item
        where d.queue_id = c.queue_id and d.on_item = any (items) and d.open
        union
        select x.item
        from eve.intent as i
        join eve.hold as x on x.queue_id = i.queue_id and x.trigger = 'effect' and x.ref = i.effect_identity
        where i.queue_id = c.queue_id and i.item = any (items) and i.effect_unique
        order by 1
    loop
        if not eve._lock_holds(c, child, false) then
            return false;
        end if;
    end loop;
    return true;
end
$$;

comment on function eve._lock_children(eve.caller, bigint[], boolean) is
'Lock the door rows of all that wait for the items, in item order, before several are ended at once; without wait false when another transaction holds one.';

create function eve._fire(
    c eve.caller,
    trigger text,
    ref text,
    at timestamptz,
    wait boolean default true,
    at_most integer default null
)
returns integer
language plpgsql
as $$
declare
    waiting record;
    released integer := 0;
begin
    for waiting in
        select distinct h.item from eve.hold as h
        where h.queue_id = c.queue_id and h.trigger = _fire.trigger and h.ref = _fire.ref
        order by h.item limit at_most
    loop
        if eve._lock_holds(c, waiting.item, wait)
            and eve._rederive(c, waiting.item, at, _fire.trigger || ' ' || _fire.ref) then
            released := released + 1;
        end if;
    end loop;
    return released;
end
$$;

comment on function eve._fire(eve.caller, text, text, timestamptz, boolean, integer) is
'Derive anew the holds that name a trigger and a reference; housekeeping does not wait, and stops after some.';

commit;
