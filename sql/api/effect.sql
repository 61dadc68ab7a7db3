-- api/effect.sql · outside effects: started, observed, compensated. Appends: effect_started, effect_observed, completed, compensated. Raises: stale_fence, not_lease_holder.
begin;

create function eve._effect_row(
    c eve.caller,
    item bigint,
    effect text,
    version integer,
    kind text,
    at timestamptz,
    evidence jsonb
)
returns void
language sql
begin atomic
    insert into eve.effect (queue_id, item, effect_identity, version, kind, at, evidence)
    values ((c).queue_id, _effect_row.item, _effect_row.effect, _effect_row.version, _effect_row.kind,
        _effect_row.at, _effect_row.evidence);
end;

comment on function eve._effect_row(eve.caller, bigint, text, integer, text, timestamptz, jsonb) is
'Index an effect event by its effect identity.';

create function public.eve_start_effect(
    queue text,
    item bigint,
    token bigint,
    effect_identity text default null,
    evidence jsonb default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    h eve.held;
    answer eve.act_answer;
    appended eve.appended;
    effect text;
    s eve.state;
    stored record;
begin
    c := eve._enter(queue, '{worker}');
    evidence := eve._check_evidence(evidence);
    perform eve._check_text('effect_identity', eve_start_effect.effect_identity, 1100, false);
    answer := eve._act_replay(c, idempotency_key, 'eve_start_effect', eve._fingerprint('eve_start_effect',
        eve._text(queue), int8send(item), int8send(token), eve._text(eve_start_effect.effect_identity),
        eve._text(evidence)));
    if answer.done is not null then
        return answer;
    end if;
    h := eve._fence_write(c, item, token);
    if h.fault is not null then
        perform eve._refuse(h.fault, c.queue, item, jsonb_build_object('token', token));
    end if;
    select x.queue_state as state, coalesce(eve_start_effect.effect_identity, i.effect_identity) as effect,
        i.cancellation_identity, i.principal
    into stored
    from eve.work_item as x
    join eve.intent as i on i.queue_id = x.queue_id and i.item = x.item
    where x.queue_id = c.queue_id and x.item = eve_start_effect.item;
    s := stored.state;
    effect := stored.effect;
    if s.cancel_requested
        or eve._tombstone(c.queue_id, stored.cancellation_identity, stored.principal) then
        perform eve._raise('55000', 'the item was cancelled before its effect started',
            jsonb_build_object('item', item, 'phase', s.phase), 'Return or fail the item.');
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'effect_started', eve._clock(c),
        worker => h.worker, token => token, revision => s.revision,
        data => eve._strip(jsonb_build_object('effect', effect, 'evidence', evidence)));
    perform eve._effect_row(c, item, effect, appended.version, 'started', appended.at, evidence);
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended, jsonb_build_object('effect', effect)));
end
$$;

comment on function public.eve_start_effect(text, bigint, bigint, text, jsonb, text) is
'Record that an outside effect is about to start: from here on a loss is uncertain unless the class may repeat it. Refuses a stale token, a lapsed lease, another holder, and a cancelled item (55000).';

create function public.eve_observe_effect(
    queue text,
    item bigint,
    effect_identity text default null,
    evidence jsonb default null,
    observed_at timestamptz default null,
    token bigint default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    a eve.acting;
    answer eve.act_answer;
    appended eve.appended;
    effect text;
    expected text[];
    missing text[];
    policy eve.policy;
    h eve.held;
begin
    c := eve._enter(queue, '{worker,verifier}');
    evidence := eve._check_evidence(evidence);
    perform eve._check_text('effect_identity', eve_observe_effect.effect_identity, 1100, false);
    perform eve._check_instant('observed_at', observed_at);
    answer := eve._act_replay(c, idempotency_key, 'eve_observe_effect', eve._fingerprint('eve_observe_effect',
        eve._text(queue), int8send(item), eve._text(eve_observe_effect.effect_identity), eve._text(evidence),
        timestamptz_send(observed_at), int8send(token)));
    if answer.done is not null then
        return answer;
    end if;
    if token is not null then
        h := eve._fence_write(c, item, token);
        if h.fault is not null then
            perform eve._refuse(h.fault, c.queue, item, jsonb_build_object('token', token));
        end if;
    end if;
    if token is null then
        a := eve._act_on(c, item);
    else
        select w.item, w.class_id, w.lane, w.queue_state into a.item, a.class_id, a.lane, a.state
        from eve.work_item as w
        where w.queue_id = c.queue_id and w.item = eve_observe_effect.item;
    end if;
    if (a.state).phase = 'leased' and token is null then
        perform eve._refuse('stale_fence', c.queue, item,
            '{"because": "a leased item takes observations of its holder"}');
    end if;
    if (a.state).phase not in ('leased', 'uncertain', 'reported') then
        perform eve._wrong_phase(c, a, 'eve_observe_effect');
    end if;
    if (a.state).phase <> 'leased' and token is null and not eve._has(c, 'verifier') then
        perform eve._must_own(c, item, 'verifier');
    end if;
    select coalesce(eve_observe_effect.effect_identity, i.effect_identity),
        coalesce(i.expected_effects, array[i.effect_identity])
    into effect, expected
    from eve.intent as i where i.queue_id = c.queue_id and i.item = eve_observe_effect.item;
    perform eve._durable(c);
    appended := eve._append(c, item, 'effect_observed', eve._clock(c),
        token => token, revision => (a.state).revision,
        data => eve._strip(jsonb_build_object('effect', effect, 'evidence', evidence,
            'observed_at', observed_at)));
    perform eve._effect_row(c, item, effect, appended.version, 'observed',
        coalesce(observed_at, appended.at), evidence);
    if (a.state).phase = 'reported' then
        missing := array(
            select u.effect from unnest(expected) as u (effect)
            where not exists (select from eve.effect as e
                where e.queue_id = c.queue_id and e.item = eve_observe_effect.item
                    and e.kind = 'observed' and e.effect_identity = u.effect));
        if missing = '{}' then
            policy := eve._policy(c.queue_id, a.class_id, (a.state).revision);
            appended := eve._append(c, item, 'completed', eve._clock(c),
                phase => case when policy.engine_verifies and eve._evidence_missing(
                    c.queue_id, item, policy.evidence_kinds, null) = '{}' then 'verified' else 'completed' end,
                revision => (a.state).revision,
                data => jsonb_build_object('record', eve._completion_of(c, item, a.state, 'effects', null,
                    'the effects of this item that were recorded as observed')));
            if appended.phase = 'verified' then
                perform eve._close_edges(c, item, 'verified', appended.at);
            end if;
        end if;
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended, jsonb_build_object('effect', effect)));
end
$$;

comment on function public.eve_observe_effect(text, bigint, text, jsonb, timestamptz, bigint, text) is
'Record an observed outside effect with its evidence: by the holder under its token, afterwards by a verifier. The last missing effect completes a reported item. Refuses other phases (55000).';

create function public.eve_compensate(
    queue text,
    item bigint,
    effect_identity text,
    evidence jsonb,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    a eve.acting;
    answer eve.act_answer;
    appended eve.appended;
begin
    c := eve._enter(queue, '{verifier,human}');
    evidence := eve._check_evidence(evidence);
    perform eve._check_text('effect_identity', eve_compensate.effect_identity, 1100, true);
    if evidence is null then
        perform eve._raise('22004', 'evidence is null or empty', '{"argument": "evidence"}',
            'Say what was done to compensate.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_compensate', eve._fingerprint('eve_compensate',
        eve._text(queue), int8send(item), eve._text(eve_compensate.effect_identity), eve._text(evidence)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    if (a.state).phase not in ('completed', 'verified') then
        perform eve._wrong_phase(c, a, 'eve_compensate');
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'compensated', eve._clock(c), revision => (a.state).revision,
        data => eve._strip(jsonb_build_object('effect', eve_compensate.effect_identity, 'evidence', evidence)));
    perform eve._effect_row(c, item, eve_compensate.effect_identity, appended.version, 'compensated',
        appended.at, evidence);
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended));
end
$$;

comment on function public.eve_compensate(text, bigint, text, jsonb, text) is
'Record a compensating effect of a completed item: it does not erase the first one. Refuses other phases (55000).';

commit;
