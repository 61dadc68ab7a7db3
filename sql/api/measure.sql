-- api/measure.sql · capacity evidence: measure a class, tell the health of a dependency, judge again what waits. Appends: released, held, expired.
begin;

create type eve.observation_answer as (
    class text,
    observed_at timestamptz,
    freshness_limit interval,
    measured interval,
    queued_items bigint,
    queued_bytes bigint,
    stored_items bigint,
    stored_bytes bigint,
    eligible_items bigint,
    oldest_eligible_age interval,
    arrivals bigint,
    completions bigint,
    in_flight bigint,
    worker_limit integer,
    reserved_capacity integer,
    dependency_health jsonb,
    start_delay interval,
    estimator text,
    drain text,
    released integer,
    replayed boolean
);

comment on type eve.observation_answer is
'Answer of eve_measure, a row a class: what was measured in one window (items, bytes, ages, counts of the window, slots), the expected start delay, the drain, and how many waiting items the observation settled. Null is what could not be measured.';

create function eve._observed(c eve.caller, class_id integer, at timestamptz, wait boolean, at_most integer)
returns eve.observation_answer
language plpgsql
as $$
declare
    o eve.observation := eve._observe(c, class_id, at);
    answer eve.observation_answer;
begin
    answer := pg_catalog.jsonb_populate_record(null::eve.observation_answer, pg_catalog.to_jsonb(o));
    answer.class := (
        select k.name from eve.work_class as k where k.queue_id = c.queue_id and k.class_id = o.class_id);
    answer.released := eve._fire(c, 'observation', answer.class, at, wait, at_most);
    answer.replayed := false;
    return answer;
end
$$;

comment on function eve._observed(eve.caller, integer, timestamptz, boolean, integer) is
'Measure a class and judge again what waits for an observation of it.';

create function eve._refresh(c eve.caller, at timestamptz, at_most integer, inout faults jsonb, out settled integer)
returns record
language plpgsql
as $$
declare
    class integer;
begin
    settled := 0;
    -- Whoever keeps house refreshes what is older than half its freshness, so that it is fresh while work is done.
    for class in
        select k.class_id
        from eve.work_class as k
        join eve.class_revision as r
            on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
        where k.queue_id = c.queue_id and (r.policy).evidence <> 'none'
            and coalesce((eve._latest(k.queue_id, k.class_id)).observed_at
                + (r.policy).freshness / 2 <= _refresh.at, true)
        order by k.class_id
    loop
        begin
            settled := settled + (eve._observed(c, class, at, false, at_most)).released;
        exception when others then
            faults := faults || pg_catalog.jsonb_build_object(
                'class', class, 'act', 'measured', 'sqlstate', sqlstate, 'because', sqlerrm);
        end;
    end loop;
end
$$;

comment on function eve._refresh(eve.caller, timestamptz, integer, jsonb) is
'Refresh the observations that are older than half their freshness; the caller holds the keeper row.';

create function public.eve_measure(queue text, class text default null, idempotency_key text default null)
returns setof eve.observation_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    one integer;
    of_class integer;
    answer eve.observation_answer;
    answers jsonb := '[]';
    prior jsonb;
begin
    c := eve._enter(queue, '{operator}');
    if idempotency_key is not null then
        prior := eve._request_open(c, idempotency_key, 'eve_measure', eve._fingerprint('eve_measure',
            eve._text(queue), eve._text(class)));
        if prior is not null then
            return query select p.* from jsonb_populate_recordset(null::eve.observation_answer, prior) as p;
            return;
        end if;
    end if;
    if class is not null then
        one := eve._class_id(c, class);
    end if;
    for of_class in
        select k.class_id from eve.work_class as k
        where k.queue_id = c.queue_id and k.class_id = coalesce(one, k.class_id)
        order by k.class_id
    loop
        answer := eve._observed(c, of_class, eve._clock(c), true, null);
        answers := answers || (to_jsonb(answer) || '{"replayed": true}');
        return next answer;
    end loop;
    if idempotency_key is not null then
        perform eve._request_close(c, idempotency_key, answers);
    end if;
end
$$;

comment on function public.eve_measure(text, text, text) is
'Measure the capacity of a class, or of each: all fields in one window, kept as evidence, and judge again what waits for it. Refuses an unknown class (P0002).';

create function public.eve_set_health(
    queue text,
    dependency text,
    health text,
    capacity integer default null,
    observed_at timestamptz default null,
    valid_for interval default '5 min',
    detail jsonb default null,
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
    at timestamptz;
    released integer;
begin
    c := eve._enter(queue, '{operator}');
    perform eve._check_text('dependency', dependency, 200, true);
    perform eve._check_instant('observed_at', observed_at);
    if eve_set_health.health is null or eve_set_health.health not in ('healthy', 'saturated', 'unhealthy') then
        perform eve._raise('22023', 'health is not healthy, saturated or unhealthy', '{"argument": "health"}',
            'Say one of the three; what nobody tells is missing, not healthy.');
    end if;
    if eve_set_health.capacity not between 0 and 1000000 then
        perform eve._raise('22023', 'capacity is not between 0 and 1000000', '{"argument": "capacity"}',
            'Pass the most leases that may use it at once, or none for no bound.');
    end if;
    if (valid_for between interval '1 s' and interval '30 days') is not true then
        perform eve._raise('22023', 'valid_for is not between one second and 30 days', '{"argument": "valid_for"}',
            'Say how long this may be believed.');
    end if;
    if octet_length(eve_set_health.detail::text) > 65536 then
        perform eve._raise('22023', 'detail is larger than 64 KiB', '{"argument": "detail"}', 'Send less.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_set_health', eve._fingerprint('eve_set_health',
        eve._text(queue), eve._text(dependency), eve._text(health), int4send(capacity),
        timestamptz_send(observed_at), interval_send(valid_for), eve._text(detail)));
    if answer.done is not null then
        return answer;
    end if;
    at := eve._clock(c);
    if eve_set_health.observed_at > at then
        perform eve._raise('22023', 'observed_at is in the future', '{"argument": "observed_at"}',
            'Pass when it was observed.');
    end if;
    insert into eve.health (queue_id, dependency, health, capacity, observed_at, valid_until, actor, detail)
    values (
        c.queue_id, eve_set_health.dependency, eve_set_health.health, eve_set_health.capacity,
        coalesce(eve_set_health.observed_at, at), coalesce(eve_set_health.observed_at, at) + valid_for, c.actor,
        eve_set_health.detail);
    released := eve._fire(c, 'health', dependency, at) + eve._fire(c, 'observation', dependency, at);
    answer.done := true;
    answer.replayed := false;
    answer.detail := jsonb_build_object('dependency', dependency, 'health', health, 'released', released);
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_set_health(text, text, text, integer, timestamptz, interval, jsonb, text) is
'Tell the queue how an outside dependency is: healthy, saturated or unhealthy, believed for valid_for; capacity bounds the live leases that use it. Judges again what waits for it. Refuses other words and instants to come (22023).';

create function public.eve_recheck(
    queue text,
    item bigint default null,
    work_id text default null,
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
    target bigint;
    at timestamptz;
    changed integer := 0;
begin
    c := eve._enter(queue, '{operator}');
    answer := eve._act_replay(c, idempotency_key, 'eve_recheck', eve._fingerprint('eve_recheck',
        eve._text(queue), int8send(eve_recheck.item), eve._text(eve_recheck.work_id)));
    if answer.done is not null then
        return answer;
    end if;
    at := eve._clock(c);
    if eve_recheck.item is not null or eve_recheck.work_id is not null then
        target := eve._find_item(c, eve_recheck.item, eve_recheck.work_id);
    end if;
    foreach target in array eve._stale(c.queue_id, array(
        select distinct h.item from eve.hold as h
        where h.queue_id = c.queue_id and h.item = coalesce(target, h.item) order by h.item limit 10000), at)
    loop
        if eve._lock_holds(c, target, true) and eve._rederive(c, target, at, 'rechecked') then
            changed := changed + 1;
        end if;
    end loop;
    answer.done := changed > 0;
    answer.item := eve_recheck.item;
    answer.replayed := false;
    answer.detail := jsonb_build_object('changed', changed);
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_recheck(text, bigint, text, text) is
'Judge again what one item, or the first 10000 waiting ones, wait for: holds whose reason no longer stands are released, what became useless expires. Refuses an unknown item (P0002).';

commit;
