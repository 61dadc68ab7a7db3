-- admit/capacity.sql · checks: capacity evidence, feasibility of the deadline, health of outside dependencies.
begin;

create function eve._judge_capacity(
    class text,
    policy eve.policy,
    cap eve.capacity,
    stored bigint,
    deadline timestamptz
)
returns jsonb
language plpgsql
stable
as $$
begin
    if policy.evidence = 'none' then
        return null;
    elsif cap.fault is null and (cap.start_delay is not null or deadline is null) then
        return null;
    elsif policy.evidence = 'limit' and stored < policy.evidence_limit then
        return null;
    end if;
    -- Without completions there is no rate: that a deadline can be met is not known.
    return eve._hold_json('capacity_evidence_' || coalesce(cap.fault, 'missing'), class, null, null);
end
$$;

comment on function eve._judge_capacity(text, eve.policy, eve.capacity, bigint, timestamptz) is
'The hold that missing or stale capacity evidence asks for; null where it is fresh, not consulted, or where the conservative limit still admits.';

create function eve._infeasible(starts timestamptz, cap eve.capacity, margin interval, deadline timestamptz)
returns boolean
language sql
immutable
return coalesce((cap).signal is not null and (cap).fault is null
    and starts + (cap).start_delay + coalesce(margin, '0') > deadline, false);

comment on function eve._infeasible(timestamptz, eve.capacity, interval, timestamptz) is
'Whether fresh evidence says that the deadline cannot be met: earliest start, start delay and completion margin together pass it.';

create function eve._health_holds(c eve.caller, policy eve.policy, at timestamptz, past jsonb default null)
returns jsonb
language plpgsql
stable
as $$
begin
    return coalesce((
        select pg_catalog.jsonb_agg(eve._hold_json(h.reason, h.name, null, null) order by h.name)
        from (
            select d.name, eve._health_reason(policy, coalesce(past ->> d.name,
                eve._health(c.queue_id, d.name, _health_holds.at, false))) as reason
            from pg_catalog.unnest(policy.dependencies) as d (name)
        ) as h
        where h.reason is not null), '[]');
end
$$;

comment on function eve._health_holds(eve.caller, eve.policy, timestamptz, jsonb) is
'The holds that the outside dependencies of a class ask for, now or as their states were.';

create function eve._health_reason(policy eve.policy, health text)
returns text
language sql
immutable
return case
    when _health_reason.health = 'unhealthy' then 'dependency_unhealthy'
    when _health_reason.health = 'saturated' then 'dependency_saturated'
    when _health_reason.health = 'missing' and (policy).evidence = 'required' then 'capacity_evidence_missing'
    when _health_reason.health = 'stale' and (policy).evidence = 'required' then 'capacity_evidence_stale'
end;

comment on function eve._health_reason(eve.policy, text) is
'What a dependency''s state asks of a submission: hold where it is bad, and where it is unknown if the class requires evidence.';

commit;
