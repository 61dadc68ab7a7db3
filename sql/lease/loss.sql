-- lease/loss.sql · what becomes of an item whose attempt ended without a completion.
begin;

create function eve._budget(policy eve.policy, state eve.state)
returns integer
language sql
immutable
return (policy).attempts + (state).allowance + (state).credits;

comment on function eve._budget(eve.policy, eve.state) is
'Acquisitions allowed: the policy''s attempts, what unparking humans added and what returns credited.';

create function eve._repeatable(
    queue_id bigint,
    item bigint,
    policy eve.policy,
    state eve.state,
    at timestamptz
)
returns boolean
language plpgsql
stable
as $$
declare
    worse text;
    first_start timestamptz;
begin
    if not state.effect_started and policy.effect_starts then
        return true;
    end if;
    select r.replay_class into worse
    from eve.intent as i
    join eve.replay_class as r on r.replay_class in (i.replay_class, policy.replay_class)
    where i.queue_id = _repeatable.queue_id and i.item = _repeatable.item
    order by r.severity desc limit 1;
    if worse = 'safe' then
        return true;
    end if;
    if worse = 'destination_protected' then
        -- The window opens at the first start that was not found absent; without declared starts at the first attempt.
        select min(e.at) into first_start from eve.effect as e
        where e.queue_id = _repeatable.queue_id and e.item = _repeatable.item and e.kind = 'started'
            and e.version > coalesce((
                select max(a.version) from eve.effect as a
                where a.queue_id = e.queue_id and a.item = e.item and a.kind = 'absent'), 0);
        if first_start is null then
            select min(l.at) into first_start from eve.ledger as l
            where l.queue_id = _repeatable.queue_id and l.item = _repeatable.item and l.kind = 'acquired';
        end if;
        return coalesce(first_start + (policy.protection ->> 'retention')::interval > at, false);
    end if;
    return false;
end
$$;

comment on function eve._repeatable(bigint, bigint, eve.policy, eve.state, timestamptz) is
'Whether another attempt is allowed without reconciliation: safe, protected by the destination for long enough, or no effect started where the class declares starts.';

create function eve._after_loss(
    queue_id bigint,
    item bigint,
    policy eve.policy,
    state eve.state,
    at timestamptz
)
returns text
language plpgsql
stable
as $$
begin
    if not eve._repeatable(queue_id, item, policy, state, at) then
        return 'uncertain';
    end if;
    if state.cancel_requested then
        return 'uncertain';
    end if;
    if state.attempts >= eve._budget(policy, state) then
        return 'quarantined';
    end if;
    return 'ready';
end
$$;

comment on function eve._after_loss(bigint, bigint, eve.policy, eve.state, timestamptz) is
'The phase after a lost lease: uncertain wins over quarantined, quarantined over ready.';

create function eve._lookup(policy eve.policy)
returns jsonb
language sql
immutable
return case when (policy).protection ? 'observations' then pg_catalog.jsonb_build_object(
    'authority', (policy).protection -> 'authority', 'observations', (policy).protection -> 'observations') end;

comment on function eve._lookup(eve.policy) is
'Where the effect of an uncertain item is looked up, and what must be observed before another attempt: what the class states in protection as authority and observations.';

create function eve._backoff(policy eve.policy, attempts integer)
returns interval
language sql
volatile
return least(
    (policy).backoff_cap,
    (policy).backoff_base * least(pg_catalog.power((policy).backoff_factor, least(_backoff.attempts, 64) - 1), 1e6)
) * (1 - (policy).backoff_jitter * pg_catalog.random());

comment on function eve._backoff(eve.policy, integer) is
'How long to wait before the next attempt: exponential, capped, with jitter that only shortens.';

create function eve._quarantine_record(c eve.caller, item bigint, state eve.state, why text, at timestamptz)
returns jsonb
language plpgsql
stable
as $$
declare
    last record;
    due timestamptz;
    error text;
begin
    select l.token, l.principal, l.worker, l.at into last
    from eve.ledger as l
    where l.queue_id = c.queue_id and l.item = _quarantine_record.item and l.kind = 'acquired'
    order by l.version desc limit 1;
    select l.due_at into due
    from eve.ledger as l
    where l.queue_id = c.queue_id and l.item = _quarantine_record.item and l.kind in ('acquired', 'renewed')
    order by l.version desc limit 1;
    select l.reason into error
    from eve.ledger as l
    where l.queue_id = c.queue_id and l.item = _quarantine_record.item and l.kind = 'failed'
    order by l.version desc limit 1;
    return pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'reason', why,
        'attempts', state.attempts,
        'last_error', error,
        'last_lease', case when last.token is not null then pg_catalog.jsonb_build_object(
            'token', last.token, 'principal', last.principal, 'worker', last.worker,
            'acquired_at', last.at, 'expires_at', due) end,
        'at', at));
end
$$;

comment on function eve._quarantine_record(eve.caller, bigint, eve.state, text, timestamptz) is
'The structured record of a quarantine: why, attempts, the last error that was reported, the last lease, when.';

commit;
