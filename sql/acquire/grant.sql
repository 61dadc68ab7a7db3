-- acquire/grant.sql · one item through the door: judge it, lease it. Appends: acquired; cancelled, expired, parked, held where the re-check condemns.
begin;

create type eve.candidate as (
    item bigint,
    work_id text,
    class text,
    class_id integer,
    class_paused boolean,
    lane smallint,
    state eve.state,
    policy eve.policy,
    payload jsonb,
    payload_size integer,
    deadline timestamptz,
    margin interval,
    value_until timestamptz,
    effect_identity text,
    cancellation_identity text,
    submitter text,
    trace text,
    edges integer,
    revision integer
);

comment on type eve.candidate is 'An item that may be leased, read after its door row was locked.';

create function eve._candidate(c eve.caller, item bigint)
returns eve.candidate
language plpgsql
stable
as $$
declare
    k eve.candidate;
begin
    select
        w.item, i.work_id, wc.name, w.class_id, wc.paused, w.lane, w.queue_state, r.policy, i.payload,
        i.payload_size, i.deadline, i.minimum_completion_margin, i.value_until, i.effect_identity,
        i.cancellation_identity, i.principal, i.trace,
        -- A return may have added edges.
        i.edges + case when (w.queue_state).version > 2 then 1 else 0 end, wc.revision
    into k
    from eve.work_item as w
    join eve.intent as i on i.queue_id = w.queue_id and i.item = w.item
    join eve.work_class as wc on wc.queue_id = w.queue_id and wc.class_id = w.class_id
    join eve.class_revision as r
        on r.queue_id = wc.queue_id and r.class_id = wc.class_id and r.revision = wc.revision
    where w.queue_id = c.queue_id and w.item = _candidate.item;
    if (k.state).revision <> k.revision then
        k.policy := eve._policy(c.queue_id, k.class_id, (k.state).revision);
    end if;
    return k;
end
$$;

comment on function eve._candidate(eve.caller, bigint) is
'Read an item with its envelope and the policy that judges it now.';

create function eve._condemn(c eve.caller, k eve.candidate, at timestamptz)
returns text
language plpgsql
stable
as $$
begin
    if eve._tombstone(c.queue_id, k.cancellation_identity, k.submitter) then
        return 'intent_cancelled';
    end if;
    if (k.policy).schema_digest is not null and (k.state).revision <> k.revision then
        -- Judged anew under the present revision; nobody able to say is no pass.
        case eve._payload_now(c.queue_id, k.item) ->> 'verdict'
            when 'invalid' then return 'payload_invalid';
            when 'unavailable' then return 'validator_unavailable';
            else null;
        end case;
    end if;
    return case
        when at + greatest(k.margin, (k.policy).completion_margin) >= k.deadline then 'deadline_passed'
        when at >= k.value_until then 'value_window_ended'
        when (k.state).attempts >= eve._budget(k.policy, k.state) then 'max attempts exceeded'
        when k.payload_size > (k.policy).payload_limit then 'payload_invalid'
        when k.submitter <> all ((k.policy).submitters) then 'class_not_authorised'
        when (k.state).effect_started and not eve._repeatable(c.queue_id, k.item, k.policy, k.state, at)
            then 'protection_ended'
        when eve._over_spend(c.queue_id, k.item, k.policy) is not null then 'spend_not_approved'
    end;
end
$$;

comment on function eve._condemn(eve.caller, eve.candidate, timestamptz) is
'Why a ready item may not be leased after all: cancelled identity, deadline, value window, budget, spend, or a payload or submitter that its present policy refuses.';

create function eve._ask_spend(c eve.caller, k eve.candidate)
returns bigint
language plpgsql
as $$
declare
    id bigint := pg_catalog.nextval('eve.decision_seq');
begin
    perform eve._append(c, 0, 'decision_proposed', eve._clock(c), data => pg_catalog.jsonb_build_object(
        'decision', id, 'kind', 'spend', 'item', k.item,
        'subject', eve._over_spend(c.queue_id, k.item, k.policy) || '{"asked_by": "queue"}'));
    return id;
end
$$;

comment on function eve._ask_spend(eve.caller, eve.candidate) is
'The queue itself asks a human to grant more spend to an item or its tree.';

create function eve._record_condemned(c eve.caller, k eve.candidate, picked eve.picked, why text, at timestamptz)
returns void
language plpgsql
as $$
begin
    case why
        when 'max attempts exceeded' then
            perform eve._append(c, k.item, 'parked', at, revision => k.revision, reason => why,
                data => pg_catalog.jsonb_build_object(
                    'quarantine', eve._quarantine_record(c, k.item, k.state, why, at)));
        when 'intent_cancelled' then
            perform eve._append(c, k.item, 'cancelled', at, revision => k.revision, reason => why);
            perform eve._close_edges(c, k.item, 'cancelled', at);
        when 'spend_not_approved' then
            -- The door row is held already: item 0 is not waited for.
            perform from eve.work_item as w
            where w.queue_id = c.queue_id and w.item = 0 for no key update skip locked;
            if not found then
                perform eve._raise('40001', 'the queue itself is being changed by a concurrent transaction',
                    pg_catalog.jsonb_build_object('item', k.item), 'Repeat the transaction.');
            end if;
            perform eve._append(c, k.item, 'held', at, revision => k.revision, reason => 'awaiting_decision',
                data => pg_catalog.jsonb_build_object('because', why, 'holds', pg_catalog.jsonb_build_array(
                    eve._hold_json('awaiting_decision', eve._ask_spend(c, k)::text, null, null))));
        when 'class_not_authorised' then
            perform eve._append(c, k.item, 'held', at, revision => k.revision, reason => why,
                data => pg_catalog.jsonb_build_object(
                    'holds', pg_catalog.jsonb_build_array(eve._hold_json(why, k.class, null, null)),
                    'submitter', k.submitter));
        when 'payload_invalid', 'validator_unavailable' then
            perform eve._append(c, k.item, 'held', at, revision => k.revision, reason => why,
                data => pg_catalog.jsonb_build_object(
                    'holds', pg_catalog.jsonb_build_array(eve._hold_json(why, k.class, null, null)),
                    'payload', eve._payload_now(c.queue_id, k.item)));
        else
            -- Where an effect has started its end is not known.
            if (k.state).effect_started then
                perform eve._append(c, k.item, 'expired', at, phase => 'uncertain', revision => k.revision,
                    reason => 'reconciliation_required',
                    data => pg_catalog.jsonb_build_object('because', why, 'owner', (k.policy).retry_owner));
                return;
            end if;
            perform eve._append(c, k.item, 'expired', at, phase => 'expired', revision => k.revision,
                reason => why);
            perform eve._close_edges(c, k.item, 'expired', at);
    end case;
end
$$;

comment on function eve._record_condemned(eve.caller, eve.candidate, eve.picked, text, timestamptz) is
'Record why a head was passed over: cancelled, expired, uncertain, parked or held.';

create function eve._grant(
    c eve.caller,
    k eve.candidate,
    worker text,
    pool text,
    slot integer,
    ttl interval
)
returns eve.acquisition_answer
language plpgsql
as $$
declare
    answer eve.acquisition_answer;
    appended eve.appended;
    -- The second reading of the clock: after the last lock, and never before the item's last event.
    at timestamptz := greatest(eve._clock(c), (k.state).at);
    lasts interval := coalesce(ttl, (k.policy).ttl);
begin
    perform eve._use(c.queue_id, k.policy, at);
    answer.expires_at := at + least(lasts, (k.policy).max_age);
    appended := eve._append(c, k.item, 'acquired', at,
        worker => worker, revision => k.revision, pool => pool, slot => slot,
        due_at => answer.expires_at);
    answer.granted := true;
    answer.item := k.item;
    answer.work_id := k.work_id;
    answer.token := appended.token;
    answer.lease := k.item || '.' || appended.token;
    answer.attempt := (k.state).attempts + 1;
    answer.attempts_left := eve._budget(k.policy, k.state) - answer.attempt;
    answer.clamped := lasts > (k.policy).max_age;
    answer.cancel_requested := (k.state).cancel_requested;
    answer.class := k.class;
    answer.revision := k.revision;
    answer.payload := k.payload;
    answer.effect_identity := k.effect_identity;
    answer.deadline := k.deadline;
    answer.pool := pool;
    answer.trace := k.trace;
    answer.replayed := false;
    if (k.state).version > 1 then
        select l.data -> 'checkpoint' into answer.checkpoint
        from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = k.item and l.data ? 'checkpoint'
        order by l.version desc limit 1;
        select l.reason into answer.last_error
        from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = k.item and l.kind in
            ('failed', 'lease_expired', 'lease_missing', 'lease_superseded')
        order by l.version desc limit 1;
        select pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
            'decision', d.decision, 'kind', d.kind,
            'answer', case when d.phase = 'open' then 'expired' else d.phase end, 'data', d.answer,
            'token', d.token::text, 'digest', d.digest)
            order by d.decision)
        into answer.answers
        from eve.decision as d
        where d.queue_id = c.queue_id and (d.phase <> 'open' or d.expires_at <= at) and d.consumed_at is null
            and (d.item = k.item or d.decision in (
                select (h.value ->> 'ref')::bigint
                from eve.ledger as l
                cross join lateral pg_catalog.jsonb_array_elements(l.data -> 'holds') as h (value)
                where l.queue_id = c.queue_id and l.item = k.item
                    and h.value ->> 'reason' = 'awaiting_decision'));
    end if;
    return answer;
end
$$;

comment on function eve._grant(eve.caller, eve.candidate, text, text, integer, interval) is
'Lease a judged item whose door row and slot the caller has taken: appends acquired, which mints the token.';

create function eve._consume(c eve.caller, items bigint[])
returns void
language plpgsql
as $$
declare
    asked record;
begin
    -- Acts of the queue take item 0 first and then door rows, an acquisition has door rows already: it does not wait.
    for asked in
        select d.decision, d.item from eve.decision as d
        where d.queue_id = c.queue_id and d.item = any (items)
            and (d.kind = 'approval' or eve._more_spend(d.kind, d.subject))
            and (d.phase <> 'open' or d.expires_at <= eve._clock(c)) and d.consumed_at is null
        order by d.decision
    loop
        perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update skip locked;
        if not found then
            perform eve._raise('40001', 'the queue itself is being changed by a concurrent transaction',
                pg_catalog.jsonb_build_object('decision', asked.decision), 'Repeat the transaction.');
        end if;
        perform eve._append(c, 0, 'decision_consumed', eve._clock(c), data => pg_catalog.jsonb_build_object(
            'decision', asked.decision, 'item', asked.item));
    end loop;
end
$$;

comment on function eve._consume(eve.caller, bigint[]) is
'Record that the answers to what these items asked were given out: an approval holds for one attempt.';

create function eve._durable(c eve.caller)
returns void
language plpgsql
as $$
begin
    if c.durability = 'required' and (
        pg_catalog.current_setting('fsync') = 'off'
        or pg_catalog.current_setting('full_page_writes') = 'off') then
        perform eve._raise('55000', 'the server does not keep what it acknowledges',
            pg_catalog.jsonb_build_object('fsync', pg_catalog.current_setting('fsync'),
                'full_page_writes', pg_catalog.current_setting('full_page_writes')),
            'Turn fsync and full_page_writes on, or create the queue with durability platform'
            ' (the storage keeps it) or any (tests).');
    end if;
    if pg_catalog.current_setting('synchronous_commit') in ('off', 'local') then
        perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
end
$$;

comment on function eve._durable(eve.caller) is
'Before a promise: refuse a server that may forget (55000) unless the queue allows it, and raise synchronous_commit for this transaction.';

commit;
