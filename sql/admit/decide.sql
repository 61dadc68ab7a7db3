-- admit/decide.sql · the decision on one submission: each check in order, the first refusal counts, every hold counts.
begin;

create type eve.decided as (
    decision text,
    reason text,
    holds jsonb
);

comment on type eve.decided is
'An admission decision with its typed reason and the hold set.';

create function eve._decide(
    c eve.caller,
    policy eve.policy,
    at timestamptz,
    payload_size integer,
    replay_class text,
    cancellation_identity text,
    lineage eve.lineage,
    not_before timestamptz,
    deadline timestamptz,
    margin interval,
    value_until timestamptz,
    awaited bigint
)
returns eve.decided
language plpgsql
stable
as $$
declare
    d eve.decided;
begin
    d.holds := '[]';
    d.reason := case
        when cancellation_identity is not null
            and eve._tombstone(c.queue_id, cancellation_identity, c.principal) then 'intent_cancelled'
        when awaited is not null and exists (
            select from eve.decision as q
            where q.queue_id = c.queue_id and q.decision = awaited and q.phase = 'declined') then 'decision_declined'
        when lineage.fault is not null then lineage.fault
        when payload_size > policy.payload_limit then 'payload_too_large'
    end;
    if d.reason is not null then
        d.decision := 'REJECT';
        return d;
    end if;
    d.reason := case
        when greatest(at, not_before) + margin >= deadline then 'deadline_passed'
        when greatest(at, not_before) >= value_until then 'value_window_ended'
    end;
    if d.reason is not null then
        d.decision := 'EXPIRE';
        return d;
    end if;
    if replay_class = 'unknown' then
        d.holds := d.holds || eve._hold_json('replay_class_unknown', null, null, null);
    end if;
    if not_before > at then
        d.holds := d.holds || eve._hold_json('not_before', null, null, not_before);
    end if;
    if awaited is not null and exists (
        select from eve.decision as q
        where q.queue_id = c.queue_id and q.decision = awaited and q.phase = 'open') then
        d.holds := d.holds || eve._hold_json('awaiting_decision', awaited::text, null, null);
    end if;
    if policy.replay_class = 'destination_protected' and (
        deadline is null or at + (policy.protection ->> 'retention')::interval < deadline) then
        d.reason := 'protection_shorter_than_life';
    end if;
    d.decision := 'ADMIT';
    return d;
end
$$;

comment on function eve._decide(
    eve.caller, eve.policy, timestamptz, integer, text, text, eve.lineage, timestamptz, timestamptz,
    interval, timestamptz, bigint
) is
'Decide a well-typed submission: REJECT, EXPIRE, or ADMIT with the holds known before its edges are stored.';

commit;
