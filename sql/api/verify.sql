-- api/verify.sql · judge what a holder completed; look up what is uncertain. Appends: verified, reconciled. Raises: terminal_state_not_owned.
begin;

create function public.eve_verify(
    queue text,
    item bigint,
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
    a eve.acting;
    policy eve.policy;
    answer eve.act_answer;
    appended eve.appended;
    kinds text[];
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, item, 'verifier');
    evidence := eve._check_evidence(evidence);
    answer := eve._act_replay(c, idempotency_key, 'eve_verify', eve._fingerprint('eve_verify',
        eve._text(queue), int8send(item), eve._text(evidence)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    if (a.state).phase <> 'completed' then
        perform eve._wrong_phase(c, a, 'eve_verify');
    end if;
    policy := eve._policy(c.queue_id, a.class_id, (a.state).revision);
    if policy.verifier_not_holder and exists (
        select from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = eve_verify.item and l.kind = 'acquired'
            and (l.principal = c.principal or l.actor = c.actor)) then
        perform eve._refuse('terminal_state_not_owned', c.queue, item,
            '{"because": "the class wants a verifier who never held the item"}');
    end if;
    kinds := eve._evidence_missing(c.queue_id, item, policy.evidence_kinds, evidence);
    if kinds <> '{}' then
        perform eve._raise('55000', 'kinds of evidence that the class requires are missing',
            jsonb_build_object('item', item, 'phase', 'completed', 'missing', kinds),
            'Give evidence of these kinds with eve_verify.');
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'verified', eve._clock(c), revision => (a.state).revision,
        data => eve._strip(jsonb_build_object('evidence', evidence,
            'record', eve._completion_of(c, item, a.state, eve._test_of((
                select i.completion_test from eve.intent as i
                where i.queue_id = c.queue_id and i.item = eve_verify.item), policy), null,
                'the judgement of a verifier'))));
    perform eve._close_edges(c, item, 'verified', appended.at);
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended));
end
$$;

comment on function public.eve_verify(text, bigint, jsonb, text) is
'Judge a completed item verified: a capability, not a kind of actor, and where the class says so never a former holder. Refuses others with terminal_state_not_owned, other phases and an item without the kinds of evidence that its class requires with 55000.';

create function public.eve_reconcile(
    queue text,
    item bigint,
    finding text,
    evidence jsonb default null,
    scope text default null,
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
    s eve.state;
    policy eve.policy;
    answer eve.act_answer;
    appended eve.appended;
    at timestamptz;
    phase text;
    effects text[];
    effect text;
    wanted boolean;
    judged boolean;
    test text;
    lacks jsonb;
begin
    c := eve._enter(queue, '{verifier,human}');
    if finding is null or finding not in ('observed', 'absent', 'unavailable') then
        perform eve._raise('22023', 'finding is not observed, absent or unavailable', '{"argument": "finding"}',
            'Say what the authoritative record answered.');
    end if;
    perform eve._check_text('scope', scope, 1000, false);
    evidence := eve._check_evidence(evidence);
    answer := eve._act_replay(c, idempotency_key, 'eve_reconcile', eve._fingerprint('eve_reconcile',
        eve._text(queue), int8send(item), eve._text(finding), eve._text(evidence), eve._text(scope)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    s := a.state;
    if s.phase not in ('uncertain', 'reported') then
        perform eve._wrong_phase(c, a, 'eve_reconcile');
    end if;
    policy := eve._policy(c.queue_id, a.class_id, s.revision);
    at := eve._clock(c);
    select array(
            select u.effect
            from unnest(coalesce(i.expected_effects, array[i.effect_identity])) as u (effect)
            where not exists (
                select from eve.effect as e
                where e.queue_id = i.queue_id and e.item = i.item and e.kind = 'observed'
                    and e.effect_identity = u.effect)
            order by u.effect),
        i.deadline is null or i.deadline > at,
        'review' in (i.completion_test, policy.completion_test),
        eve._test_of(i.completion_test, policy)
    into effects, wanted, judged, test
    from eve.intent as i where i.queue_id = c.queue_id and i.item = eve_reconcile.item;
    phase := case
        when finding = 'observed' and policy.engine_verifies and not judged and eve._evidence_missing(
            c.queue_id, item, policy.evidence_kinds, evidence) = '{}' then 'verified'
        when finding = 'observed' then 'completed'
        when finding = 'unavailable' then 'uncertain'
        when s.cancel_requested or not wanted then 'ready'
        when s.attempts >= eve._budget(policy, s) then 'quarantined'
        else 'ready' end;
    if phase = 'ready' then
        lacks := nullif(eve._ticket_holds(c.queue_id, item, coalesce(s.ready_since, at)), '[]');
        phase := case when lacks is null then phase else 'held' end;
    end if;
    perform eve._durable(c);
    appended := eve._append(c, item, 'reconciled', at, phase => phase, revision => s.revision,
        reason => case phase when 'uncertain' then 'reconciliation_required'
            when 'quarantined' then 'max attempts exceeded' else finding end,
        data => eve._strip(jsonb_build_object(
            'finding', finding, 'holds', lacks, 'effects', effects, 'evidence', evidence, 'scope', scope,
            'record', case when finding = 'observed' then eve._completion_of(c, item, s, test, effects,
                coalesce(scope, 'the authoritative record')) end,
            'quarantine', case when phase = 'quarantined'
                then eve._quarantine_record(c, item, s, 'max attempts exceeded', at) end)));
    if finding <> 'unavailable' then
        foreach effect in array effects loop
            perform eve._effect_row(c, item, effect, appended.version, finding, appended.at, evidence);
        end loop;
    end if;
    if phase = 'verified' then
        perform eve._close_edges(c, item, 'verified', at);
    elsif phase in ('ready', 'held') and (s.cancel_requested or not wanted) then
        -- Nothing happened, and nobody wants it any more.
        a := eve._act_on(c, item);
        if s.cancel_requested then
            appended := eve._append(c, item, 'cancelled', at, reason => 'cancel requested before');
        else
            appended := eve._append(c, item, 'expired', at, phase => 'expired', reason => 'deadline_passed');
        end if;
        perform eve._close_edges(c, item, appended.phase, at);
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended, jsonb_build_object('finding', finding)));
end
$$;

comment on function public.eve_reconcile(text, bigint, text, jsonb, text, text) is
'Settle an uncertain item from its authoritative record: observed records every expected effect that was missing and completes it, absent allows another attempt within the budget, unavailable leaves it uncertain. Refuses other phases (55000).';

commit;
