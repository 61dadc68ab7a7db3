-- capacity/observation.sql · what was measured of a class, and what was told of outside dependencies: insert-only evidence.
begin;

create table eve.observation (
    queue_id bigint not null,
    class_id integer not null,
    tx xid8 not null default pg_current_xact_id(),
    observed_at timestamptz not null,
    freshness_limit interval not null,
    measured interval not null,
    queued_items bigint not null,
    queued_bytes bigint not null,
    stored_items bigint not null,
    stored_bytes bigint not null,
    eligible_items bigint not null,
    oldest_eligible_age interval,
    arrivals bigint not null,
    completions bigint not null,
    in_flight bigint not null,
    worker_limit integer not null,
    reserved_capacity integer not null,
    dependency_health jsonb not null,
    start_delay interval,
    estimator text not null,
    drain text not null,
    constraint observation_pkey primary key (queue_id, class_id, observed_at, tx),
    constraint observation_drain_is_known check (drain in ('known', 'unavailable', 'negative'))
);

comment on table eve.observation is
'Capacity snapshots of a class, each measured in one window of length "measured": insert-only, read newest first. A null means that it could not be measured; it never stands for zero.';

create trigger observation_guard_row before update or delete on eve.observation
for each row execute function eve._guard();

create trigger observation_guard_truncate before truncate on eve.observation
for each statement execute function eve._guard();

alter table eve.observation enable always trigger observation_guard_row;
alter table eve.observation enable always trigger observation_guard_truncate;

comment on trigger observation_guard_row on eve.observation is 'What was measured stays as it was measured.';
comment on trigger observation_guard_truncate on eve.observation is 'What was measured stays as it was measured.';

create sequence eve.health_seq as bigint;

comment on sequence eve.health_seq is 'Orders what was told of one dependency.';

create table eve.health (
    queue_id bigint not null,
    dependency text not null,
    told bigint not null default nextval('eve.health_seq'),
    health text not null,
    capacity integer,
    observed_at timestamptz not null,
    valid_until timestamptz not null,
    actor text not null,
    detail jsonb,
    constraint health_pkey primary key (queue_id, dependency, told),
    constraint health_is_known check (health in ('healthy', 'saturated', 'unhealthy')),
    constraint health_capacity_is_not_negative check (capacity >= 0)
);

comment on table eve.health is
'What operators and probes told of an outside dependency, newest last: insert-only. capacity bounds the live leases of all classes that depend on it; null sets no bound.';

create table eve.gauge (
    queue_id bigint not null,
    dependency text not null,
    turns bigint not null,
    constraint gauge_pkey primary key (queue_id, dependency)
);

comment on table eve.gauge is
'One row a dependency with a capacity: whoever leases work that needs it updates the row first, so that the bound is exact at every isolation level. No other call touches it.';

create function eve._observation_json(queue_id bigint, item bigint)
returns jsonb
language plpgsql
stable
set timezone to 'UTC'
set intervalstyle to postgres
as $$
begin
    return pg_catalog.to_jsonb(eve._latest(queue_id, (
        select w.class_id from eve.work_item as w
        where w.queue_id = _observation_json.queue_id and w.item = _observation_json.item)))
        - '{queue_id,class_id,tx}'::text[];
end
$$;

comment on function eve._observation_json(bigint, bigint) is
'The newest observation of an item''s class as evidence in an event.';

create function eve._told(queue_id bigint, dependency text)
returns eve.health
language sql
stable
begin atomic
    select h.* from eve.health as h
    where h.queue_id = _told.queue_id and h.dependency = _told.dependency
    order by h.told desc limit 1;
end;

comment on function eve._told(bigint, text) is 'What was last told of a dependency, null when nothing was.';

create function eve._in_use(queue_id bigint, dependency text)
returns bigint
language plpgsql
stable
as $$
begin
    return (
        select pg_catalog.count(*)
        from eve._live_leases(_in_use.queue_id, null) as l
        join eve.work_item as w on w.queue_id = _in_use.queue_id and w.item = l.item
        join eve.work_class as k on k.queue_id = w.queue_id and k.class_id = w.class_id
        join eve.class_revision as r
            on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
        where _in_use.dependency = any ((r.policy).dependencies));
end
$$;

comment on function eve._in_use(bigint, text) is
'How many live leases use an outside dependency: those of classes whose policy names it.';

create function eve._health_told(told eve.health, at timestamptz)
returns text
language sql
immutable
return case
    when (_health_told.told).told is null then 'missing'
    when (_health_told.told).health <> 'healthy' then (_health_told.told).health
    when (_health_told.told).valid_until <= _health_told.at then 'stale'
    else 'healthy'
end;

comment on function eve._health_told(eve.health, timestamptz) is
'What was told of a dependency as its state at an instant: missing, stale, or the word.';

create function eve._health(queue_id bigint, dependency text, at timestamptz, counting boolean)
returns text
language plpgsql
stable
as $$
declare
    told eve.health := eve._told(queue_id, dependency);
    health text := eve._health_told(told, at);
begin
    if health = 'healthy' and counting and eve._in_use(queue_id, dependency) >= told.capacity then
        return 'saturated';
    end if;
    return health;
end
$$;

comment on function eve._health(bigint, text, timestamptz, boolean) is
'The state of an outside dependency now: healthy, saturated (told so, or counting as many leases as its capacity), unhealthy, stale (told too long ago) or missing (never told).';

create function eve._downstream(queue_id bigint, policy eve.policy, at timestamptz)
returns text
language plpgsql
stable
as $$
begin
    if policy.dependencies is null then
        return null;
    end if;
    return (
        select pg_catalog.format('dependency %I is %s', h.name, h.health)
        from (
            select d.name, eve._health(_downstream.queue_id, d.name, _downstream.at, true) as health
            from pg_catalog.unnest(policy.dependencies) as d (name)
        ) as h
        where h.health in ('saturated', 'unhealthy')
            or policy.evidence = 'required' and h.health in ('missing', 'stale')
        order by h.health = 'unhealthy' desc, h.name limit 1);
end
$$;

comment on function eve._downstream(bigint, eve.policy, timestamptz) is
'Which outside dependency of a class takes no work now, and why; null when all can.';

create function eve._use(queue_id bigint, policy eve.policy, at timestamptz)
returns void
language plpgsql
as $$
declare
    needed text;
begin
    for needed in
        select d.name
        from pg_catalog.unnest(policy.dependencies) as d (name)
        where (eve._told(_use.queue_id, d.name)).capacity is not null
        order by d.name
    loop
        insert into eve.gauge as g (queue_id, dependency, turns) values (_use.queue_id, needed, 1)
        on conflict on constraint gauge_pkey do update set turns = g.turns + 1;
        -- Counted again after the turn: whoever came first has committed.
        if eve._health(queue_id, needed, at, true) = 'saturated' then
            perform eve._raise('40001', pg_catalog.format('dependency "%s" was saturated meanwhile', needed),
                pg_catalog.jsonb_build_object('dependency', needed), 'Repeat the transaction.');
        end if;
    end loop;
end
$$;

comment on function eve._use(bigint, eve.policy, timestamptz) is
'Take a turn at each dependency with a capacity before leasing, in name order, so that no more leases than that ever run. Raises 40001 where another transaction took the last place.';

create type eve.capacity as (
    signal text,
    fault text,
    age interval,
    observed_at timestamptz,
    start_delay interval,
    drain text
);

comment on type eve.capacity is
'What a decision knows of a class''s capacity: fault is missing or stale with the signal that is, null when the newest observation is fresh.';

create function eve._latest(queue_id bigint, class_id integer)
returns eve.observation
language sql
stable
begin atomic
    select o.* from eve.observation as o
    where o.queue_id = _latest.queue_id and o.class_id = _latest.class_id
    order by o.observed_at desc, o.tx desc limit 1;
end;

comment on function eve._latest(bigint, integer) is 'The newest observation of a class, null when there is none.';

create function eve._capacity_of(o eve.observation, at timestamptz)
returns eve.capacity
language plpgsql
immutable
as $$
declare
    found_one eve.capacity;
begin
    found_one.signal := 'observation';
    found_one.fault := case
        when o.observed_at is null then 'missing'
        when at > o.observed_at + o.freshness_limit then 'stale'
    end;
    found_one.age := at - o.observed_at;
    found_one.observed_at := o.observed_at;
    found_one.start_delay := o.start_delay;
    found_one.drain := coalesce(o.drain, 'unavailable');
    return found_one;
end
$$;

comment on function eve._capacity_of(eve.observation, timestamptz) is
'An observation as evidence at an instant: fresh, stale or, where there is none, missing.';

create function eve._capacity(queue_id bigint, class_id integer, at timestamptz)
returns eve.capacity
language plpgsql
stable
as $$
begin
    return eve._capacity_of(eve._latest(queue_id, class_id), at);
end
$$;

comment on function eve._capacity(bigint, integer, timestamptz) is
'The newest observation of a class as evidence: fresh, stale or missing; one without a start delay has no completions to reckon with.';

create function eve._oldest_eligible(queue_id bigint, class_id integer)
returns timestamptz
language plpgsql
stable
as $$
begin
    return (
        select min(h.ready_since)
        from pg_catalog.generate_series(0, 7) as n (place)
        cross join lateral (
            select r.ready_since from eve.ready as r
            where r.queue_id = _oldest_eligible.queue_id and r.class_id = _oldest_eligible.class_id
                and r.rank = (n.place / 2)::smallint and r.late = (n.place % 2 = 1)
            order by r.ready_since, r.item limit 1
        ) as h);
end
$$;

comment on function eve._oldest_eligible(bigint, integer) is
'Since when the longest waiting eligible item of a class is ready; null when none is.';

create function eve._observe(c eve.caller, class_id integer, at timestamptz)
returns eve.observation
language plpgsql
as $$
declare
    o eve.observation;
    policy eve.policy := eve._policy(c.queue_id, class_id, null);
    now_total eve.total := eve._total(c.queue_id, class_id, at, false);
    base eve.total;
    oldest timestamptz := eve._oldest_eligible(c.queue_id, class_id);
begin
    -- The window reaches back to the last total before it began, or as far as there are totals.
    select x.* into base from eve.total as x
    where x.queue_id = c.queue_id and x.class_id = _observe.class_id and x.at <= _observe.at - policy.measure_window
    order by x.seq desc limit 1;
    if not found then
        select x.* into base from eve.total as x
        where x.queue_id = c.queue_id and x.class_id = _observe.class_id
        order by x.seq limit 1;
    end if;
    o.queue_id := c.queue_id;
    o.class_id := class_id;
    o.tx := pg_catalog.pg_current_xact_id();
    o.observed_at := at;
    o.freshness_limit := policy.freshness;
    o.measured := coalesce(at - base.at, interval '0');
    o.queued_items := now_total.held + now_total.ready;
    o.queued_bytes := now_total.queued_bytes;
    o.stored_items := eve._stored(now_total);
    o.stored_bytes := now_total.live_bytes;
    o.eligible_items := now_total.ready;
    o.oldest_eligible_age := case when oldest is not null then greatest(interval '0', at - oldest) end;
    o.arrivals := now_total.arrivals - coalesce(base.arrivals, 0);
    o.completions := now_total.completions - coalesce(base.completions, 0);
    o.in_flight := now_total.leased;
    select coalesce(pg_catalog.sum(p.slots), 0)::integer,
        coalesce(pg_catalog.sum(p.slots) filter (where p.classes is not null), 0)::integer
    into o.worker_limit, o.reserved_capacity
    from eve.pool as p
    where p.queue_id = c.queue_id and not p.paused
        and (policy.pools is null or p.pool = any (policy.pools))
        and (p.classes is null or (
            select k.name from eve.work_class as k
            where k.queue_id = c.queue_id and k.class_id = _observe.class_id) = any (p.classes));
    o.dependency_health := coalesce((
        select pg_catalog.jsonb_object_agg(d.name, eve._health(c.queue_id, d.name, _observe.at, true))
        from pg_catalog.unnest(policy.dependencies) as d (name)), '{}');
    select e.estimator, e.start_delay into o.estimator, o.start_delay
    from eve._start_delay_of(o, policy.measure_window) as e;
    o.drain := case
        when o.measured <= interval '0' or o.queued_items > 0 and o.arrivals = 0 and o.completions = 0
            then 'unavailable'
        when o.arrivals > o.completions and o.queued_items > 0 then 'negative'
        else 'known'
    end;
    insert into eve.observation select o.*;
    return o;
end
$$;

comment on function eve._observe(eve.caller, integer, timestamptz) is
'Measure a class once, all fields in one window, and keep the snapshot.';

create function eve._start_delay_of(
    o eve.observation,
    reach interval,
    out estimator text,
    out start_delay interval
)
returns record
language plpgsql
stable
as $$
declare
    called text := 'select eve._start_delay($1, $2, $3, $4)';
    seconds double precision;
    done bigint[];
    lasted double precision[];
begin
    estimator := 'mean';
    if o.worker_limit = 0 then
        return;
    elsif o.eligible_items = 0 and o.in_flight < o.worker_limit then
        start_delay := interval '0';
        return;
    elsif o.completions <= 0 or o.measured <= interval '0' then
        return;
    end if;
    if pg_catalog.to_regprocedure('eve._start_delay(bigint, bigint[], double precision[], double precision)')
        is not null then
        estimator := 'lower quartile of rates';
        select pg_catalog.array_agg(s.done order by s.at), pg_catalog.array_agg(s.lasted order by s.at)
        into done, lasted
        from (
            select x.at, pg_catalog.lead(x.completions) over w - x.completions as done,
                extract(epoch from pg_catalog.lead(x.at) over w - x.at)::float8 as lasted
            from eve.total as x
            where x.queue_id = o.queue_id and x.class_id = o.class_id and x.at >= o.observed_at - reach
            window w as (order by x.seq)
        ) as s
        where s.lasted > 0;
        execute called into seconds using o.eligible_items, done, lasted, 0.25::double precision;
    end if;
    if seconds is null then
        estimator := 'mean';
        seconds := (o.eligible_items * extract(epoch from o.measured) / o.completions)::double precision;
    end if;
    start_delay := pg_catalog.make_interval(secs => least(seconds, 1e9));
end
$$;

comment on function eve._start_delay_of(eve.observation, interval) is
'Eligible work ahead over the completion rate of the same window, from the lower quartile of its parts where eve_plpython is installed; null (unavailable) without completions, or where nobody may work.';

create table eve.budget (
    queue_id bigint not null,
    class_id integer not null,
    turns bigint not null,
    constraint budget_pkey primary key (queue_id, class_id)
);

comment on table eve.budget is
'One row for each class with a strict budget, and under class 0 for the shared one: submissions update it before they count, so that a strict budget is never exceeded. Nobody who finishes work touches it.';

create type eve.spent_budget as (
    items bigint,
    bytes bigint,
    shared_items bigint,
    shared_bytes bigint
);

comment on type eve.spent_budget is
'What a class, and the whole queue, store that is neither verified nor ended; null where no limit asked for the count.';

create function eve._count_budget(c eve.caller, class_id integer, policy eve.policy, at timestamptz)
returns eve.spent_budget
language plpgsql
as $$
declare
    spent eve.spent_budget;
    shared boolean := policy.shared_item_limit is not null or policy.shared_byte_limit is not null;
    own boolean := policy.item_limit is not null or policy.byte_limit is not null or policy.evidence = 'limit';
begin
    if policy.budget_mode = 'strict' then
        -- Updated, not locked: above READ COMMITTED whoever counted too early gets 40001.
        if shared then
            insert into eve.budget as b (queue_id, class_id, turns) values (c.queue_id, 0, 1)
            on conflict on constraint budget_pkey do update set turns = b.turns + 1;
        end if;
        if own then
            insert into eve.budget as b (queue_id, class_id, turns)
            values (c.queue_id, _count_budget.class_id, 1)
            on conflict on constraint budget_pkey do update set turns = b.turns + 1;
        end if;
    end if;
    if own then
        select eve._stored(t), t.live_bytes into spent.items, spent.bytes
        from eve._total(c.queue_id, _count_budget.class_id, at, false) as t;
    end if;
    if shared then
        select pg_catalog.sum(eve._stored(t))::bigint, pg_catalog.sum(t.live_bytes)::bigint
        into spent.shared_items, spent.shared_bytes
        from eve.work_class as k
        cross join lateral eve._total(k.queue_id, k.class_id, at, false) as t
        where k.queue_id = c.queue_id;
    end if;
    return spent;
end
$$;

comment on function eve._count_budget(eve.caller, integer, eve.policy, timestamptz) is
'Count what the limits of a class ask for. Strict: submissions take turns, so that none exceeds; striped: they do not, and may exceed by those in flight.';

commit;
