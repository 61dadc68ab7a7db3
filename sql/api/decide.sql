-- api/decide.sql · ask a human, and the human's answer. Appends under item 0: decision_proposed, decision_accepted, decision_declined. Raises: terminal_state_not_owned.
begin;

create function eve._propose(
    c eve.caller,
    kind text,
    subject jsonb,
    item bigint,
    expires_at timestamptz,
    token bigint default null,
    digest text default null
)
returns bigint
language plpgsql
as $$
declare
    id bigint := pg_catalog.nextval('eve.decision_seq');
begin
    perform eve._queue_event(c, 'decision_proposed', eve._strip(
        pg_catalog.jsonb_build_object('decision', id, 'kind', kind, 'item', item, 'token', token, 'digest', digest,
            'expires_at', expires_at))
        || pg_catalog.jsonb_build_object('subject', subject));
    return id;
end
$$;

comment on function eve._propose(eve.caller, text, jsonb, bigint, timestamptz, bigint, text) is
'Record a proposed decision under a new id.';

create function public.eve_propose(
    queue text,
    kind text,
    item bigint default null,
    work_id text default null,
    pool text default null,
    slots integer default null,
    subject jsonb default '{}',
    expires_at timestamptz default null,
    token bigint default null,
    digest text default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
    about jsonb;
    h eve.held;
    bound boolean := eve_propose.kind = 'approval' and eve_propose.item is not null;
begin
    c := eve._enter(queue, '{producer,worker,verifier,operator,human}');
    if eve_propose.kind is null or eve_propose.kind not in ('spend', 'waiver', 'policy', 'approval', 'import') then
        perform eve._raise('22023', 'kind is not spend, waiver, policy, approval or import', '{"argument": "kind"}',
            'Name what the human is asked for.');
    end if;
    if jsonb_typeof(eve_propose.subject) is distinct from 'object' then
        perform eve._raise('22023', 'subject is not a JSON object', '{"argument": "subject"}', 'Pass an object.');
    end if;
    perform eve._check_instant('expires_at', eve_propose.expires_at);
    perform eve._check_text('work_id', eve_propose.work_id, 512, false);
    perform eve._check_text('pool', eve_propose.pool, 200, false);
    if eve_propose.slots < 0 or eve_propose.slots > (select k.slots_ceiling from eve.contract as k) then
        perform eve._raise('22023', 'slots is not between 0 and the ceiling', '{"argument": "slots", "ceiling": 1024}',
            'Ask for fewer slots.');
    end if;
    if eve_propose.digest !~ '^[0-9a-f]{64}$' then
        perform eve._raise('22023', 'digest is no sha256 in lower-case hex', '{"argument": "digest"}',
            'Pass the sha256 of the proposed action, 64 hex digits.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_propose', eve._fingerprint('eve_propose',
        eve._text(queue), eve._text(eve_propose.kind), int8send(eve_propose.item), eve._text(work_id), eve._text(pool),
        int4send(slots), eve._text(eve_propose.subject), timestamptz_send(eve_propose.expires_at),
        int8send(eve_propose.token), eve._text(eve_propose.digest)));
    if answer.done is not null then
        return answer;
    end if;
    about := eve_propose.subject || eve._strip(jsonb_build_object(
        'work_id', work_id, 'pool', pool, 'slots', slots));
    if eve_propose.kind = 'waiver' then
        if not exists (
            select from eve.dependency as d
            where d.queue_id = c.queue_id and d.item = eve_propose.item and d.on_work_id = work_id) then
            perform eve._raise('P0002', 'the item has no dependency of that work_id',
                jsonb_build_object('item', eve_propose.item, 'work_id', work_id),
                'Name the waiting item and the work_id it waits for.');
        end if;
    elsif eve_propose.kind = 'spend' then
        perform eve._check_spend(c, pool, slots);
    end if;
    if eve_propose.item is not null and not exists (
        select from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = eve_propose.item and w.item > 0) then
        perform eve._raise('P0002', format('unknown item %s', eve_propose.item), null,
            'Items are numbered by eve_submit.');
    end if;
    if bound and (eve_propose.token is null or eve_propose.digest is null) then
        perform eve._raise('22004', 'an approval about an item names no token or no digest',
            '{"argument": "token, digest"}', 'Pass the token of the lease and the sha256 of the proposed action.');
    elsif not coalesce(bound, false) and num_nonnulls(eve_propose.token, eve_propose.digest) > 0 then
        perform eve._raise('22023', 'token and digest belong to an approval about an item',
            '{"argument": "token, digest"}', 'Pass them with kind approval and item only.');
    end if;
    if bound then
        -- Item 0 before the lease row, as every act of the queue.
        perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
        h := eve._fence_write(c, eve_propose.item, eve_propose.token);
        if h.fault is not null then
            perform eve._refuse(h.fault, c.queue, eve_propose.item, jsonb_build_object('token', eve_propose.token));
        end if;
    end if;
    answer := eve._acted(0, null);
    answer.done := true;
    answer.decision := eve._propose(c, eve_propose.kind, about, eve_propose.item, eve_propose.expires_at,
        eve_propose.token, eve_propose.digest);
    answer.item := eve_propose.item;
    answer.phase := 'open';
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_propose(
    text, text, bigint, text, text, integer, jsonb, timestamptz, bigint, text, text
) is
'Ask a human: spend (pool, slots), waiver (item, the work_id it waits for), import, policy or approval. An approval about an item is asked by its holder under the token, for the action with that sha256 digest (put the action into subject), and answered once, at the next acquire: accepted, declined or expired. Answers the decision''s id. Refuses what does not exist (P0002), a stale token, a lapsed lease and another holder.';

create function eve._check_spend(c eve.caller, pool text, slots integer)
returns void
language plpgsql
stable
as $$
begin
    if slots is null or slots < 0 or slots > (select k.slots_ceiling from eve.contract as k) then
        perform eve._raise('22023', 'slots is not between 0 and the ceiling', '{"argument": "slots", "ceiling": 1024}',
            'Ask for fewer slots.');
    end if;
    if pool = 'local' then
        perform eve._raise('22023', 'pool local always has one slot', '{"argument": "pool"}',
            'Define another pool for more than one lease.');
    end if;
    if not exists (select from eve.pool as p where p.queue_id = c.queue_id and p.pool = _check_spend.pool) then
        perform eve._raise('P0002',
            pg_catalog.format('unknown pool "%s"', coalesce(pg_catalog.left(pool, 200), 'null')), null,
            'Define it with eve_define_pool.');
    end if;
end
$$;

comment on function eve._check_spend(eve.caller, text, integer) is
'Refuse a spend for pool local or beyond the ceiling (22023), or for an unknown pool (P0002).';

create function eve._answer_decision(c eve.caller, decision bigint, verdict text, answer jsonb, extra jsonb)
returns eve.act_answer
language plpgsql
as $$
declare
    d record;
    appended eve.appended;
    acted eve.act_answer;
    members text[];
    at timestamptz;
    grants jsonb;
begin
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    select q.kind, q.phase, q.subject, q.item, q.expires_at, q.consumed_at into d
    from eve.decision as q
    where q.queue_id = c.queue_id and q.decision = _answer_decision.decision;
    if not found then
        perform eve._raise('P0002', pg_catalog.format('unknown decision %s', coalesce(decision::text, 'null')),
            pg_catalog.jsonb_build_object('decision', decision), 'Propose it with eve_propose first.');
    end if;
    at := eve._clock(c);
    if d.phase <> 'open' then
        perform eve._raise('55000', pg_catalog.format('decision %s is %s', decision, d.phase),
            pg_catalog.jsonb_build_object('decision', decision, 'phase', d.phase),
            'Decisions are final; propose another.');
    end if;
    if d.expires_at <= at and (verdict = 'accepted' or d.consumed_at is not null) then
        perform eve._raise('55000', pg_catalog.format('decision %s has expired', decision),
            pg_catalog.jsonb_build_object('decision', decision, 'expired_at', d.expires_at), 'Propose another.');
    end if;
    if eve._more_spend(d.kind, d.subject) and verdict = 'accepted' then
        grants := coalesce(answer -> 'grant', d.subject -> 'grant');
        if pg_catalog.jsonb_typeof(grants) <> 'number'
            or ((grants #>> '{}')::numeric > 0 and (grants #>> '{}')::numeric < 1e18) is not true then
            perform eve._raise('22023', 'grant is no number between 0 and 10^18', '{"argument": "answer"}',
                'Pass what is added to the limit: {"grant": 10}.');
        end if;
        extra := coalesce(extra, '{}') || pg_catalog.jsonb_build_object('grant', grants);
    elsif d.kind = 'spend' and verdict = 'accepted' then
        perform eve._check_spend(c, d.subject ->> 'pool', (d.subject ->> 'slots')::integer);
        extra := coalesce(extra, '{}') || pg_catalog.jsonb_build_object(
            'pool', d.subject ->> 'pool', 'slots', (d.subject ->> 'slots')::integer);
    end if;
    if d.kind = 'waiver' and verdict = 'accepted' then
        -- The door of the waiting item first, item 0 last.
        if eve._lock_holds(c, d.item, true) then
            null;
        end if;
        members := eve._cycle(c.queue_id, d.item);
        update eve.dependency as e set open = false, waiver = _answer_decision.decision
        where e.queue_id = c.queue_id and e.item = d.item and e.on_work_id = d.subject ->> 'work_id' and e.open;
    end if;
    appended := eve._queue_event(c, 'decision_' || verdict, eve._strip(
        pg_catalog.jsonb_build_object('decision', decision, 'answer', answer) || coalesce(extra, '{}')));
    if d.kind = 'waiver' and verdict = 'accepted' then
        perform eve._rederive(c, d.item, at, 'waiver ' || decision);
        perform eve._rederive_named(c, members, at, 'waiver ' || decision);
    end if;
    perform eve._fire(c, 'decision', decision::text, at);
    acted := eve._acted(coalesce(d.item, 0), appended, pg_catalog.jsonb_build_object('kind', d.kind));
    acted.decision := decision;
    acted.phase := verdict;
    return acted;
end
$$;

comment on function eve._answer_decision(eve.caller, bigint, text, jsonb, jsonb) is
'Take a human''s final answer: opens the pool of a spend, waives the edge of a waiver, releases what waited for the decision.';

create function public.eve_accept(
    queue text,
    decision bigint,
    answer jsonb default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    acted eve.act_answer;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, null, 'human');
    acted := eve._act_replay(c, idempotency_key, 'eve_accept', eve._fingerprint('eve_accept',
        eve._text(queue), int8send(decision), eve._text(answer)));
    if acted.done is not null then
        return acted;
    end if;
    return eve._act_keep(c, idempotency_key, eve._answer_decision(c, decision, 'accepted', answer, null));
end
$$;

comment on function public.eve_accept(text, bigint, jsonb, text) is
'A human accepts an open decision, finally. Of a spend that the queue asked for an item, answer may say the grant that is added to the limit: {"grant": 10}. Refuses every other caller (terminal_state_not_owned), unknown decisions (P0002) and decided or expired ones (55000).';

create function public.eve_decline(
    queue text,
    decision bigint,
    answer jsonb default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    acted eve.act_answer;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, null, 'human');
    acted := eve._act_replay(c, idempotency_key, 'eve_decline', eve._fingerprint('eve_decline',
        eve._text(queue), int8send(decision), eve._text(answer)));
    if acted.done is not null then
        return acted;
    end if;
    return eve._act_keep(c, idempotency_key, eve._answer_decision(c, decision, 'declined', answer, null));
end
$$;

comment on function public.eve_decline(text, bigint, jsonb, text) is
'A human declines an open decision, finally: items that waited for it since their submission are cancelled, those that a holder returned get the answer, those that spent too much are quarantined. Refuses every other caller (terminal_state_not_owned), unknown decisions (P0002) and decided ones (55000).';

create function public.eve_approve_slots(
    queue text,
    pool text,
    slots integer,
    default_pool boolean default true,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    acted eve.act_answer;
    id bigint;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, null, 'human');
    perform eve._check_text('pool', eve_approve_slots.pool, 200, true);
    if default_pool is null then
        perform eve._raise('22004', 'default_pool is null', '{"argument": "default_pool"}', 'Pass true or false.');
    end if;
    acted := eve._act_replay(c, idempotency_key, 'eve_approve_slots', eve._fingerprint('eve_approve_slots',
        eve._text(queue), eve._text(eve_approve_slots.pool), int4send(slots), eve._text(default_pool)));
    if acted.done is not null then
        return acted;
    end if;
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    if eve_approve_slots.pool <> 'local' and not exists (
        select from eve.pool as p where p.queue_id = c.queue_id and p.pool = eve_approve_slots.pool) then
        perform eve._queue_event(c, 'pool_defined', jsonb_build_object('pool', eve_approve_slots.pool));
    end if;
    perform eve._check_spend(c, eve_approve_slots.pool, slots);
    id := eve._propose(c, 'spend', jsonb_build_object('pool', eve_approve_slots.pool, 'slots', slots), null, null);
    return eve._act_keep(c, idempotency_key, eve._answer_decision(c, id, 'accepted', null,
        jsonb_build_object('default_pool', default_pool)));
end
$$;

comment on function public.eve_approve_slots(text, text, integer, boolean, text) is
'A human approves the spend of a pool in one call: pool, proposal and acceptance, and makes it the default pool. Fewer slots than now let leases end and free none. Refuses every other caller (terminal_state_not_owned) and pool local (22023).';

commit;
