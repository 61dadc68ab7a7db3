-- fold/project_queue.sql · item 0: what the queue's own events make of queue, class, pool, access and decision.
begin;

create function eve._summarise_classes(queue_id bigint)
returns void
language plpgsql
as $$
begin
    update eve.queue as q
    set ttl_floor = w.floor, ttl_ceiling = w.ceiling, lanes = w.lanes, restricted = w.restricted,
        limited = w.limited
    from (
        select
            min((r.policy).ttl_floor) as floor,
            max((r.policy).ttl_ceiling) as ceiling,
            pg_catalog.array_agg(distinct k.lane::integer order by k.lane::integer) as lanes,
            pg_catalog.bool_or(k.paused or (r.policy).pools is not null
                or (r.policy).dependencies is not null)
            or exists (select from eve.pool as p
                where p.queue_id = _summarise_classes.queue_id and p.classes is not null) as restricted,
            exists (select from eve.class_revision as x
                where x.queue_id = _summarise_classes.queue_id
                    and (x.policy).limit_per_key is not null) as limited
        from eve.work_class as k
        join eve.class_revision as r
            on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
        where k.queue_id = _summarise_classes.queue_id
    ) as w
    where q.queue_id = _summarise_classes.queue_id and w.lanes is not null
        and (q.ttl_floor, q.ttl_ceiling, q.lanes, q.restricted, q.limited)
            is distinct from (w.floor, w.ceiling, w.lanes, w.restricted, w.limited);
end
$$;

comment on function eve._summarise_classes(bigint) is
'Keep on the queue row what every acquisition asks of the classes: the span of lease times, the lanes, whether any class is paused or bound to pools or to outside dependencies, and whether any revision limits keys.';

create function eve._project_queue(
    queue_id bigint,
    version integer,
    kind text,
    at timestamptz,
    actor text,
    principal text,
    epoch bigint,
    data jsonb
)
returns void
language plpgsql
as $$
begin
    case kind
        when 'queue_created' then
            insert into eve.queue (
                queue_id, name, durability, aging_interval, request_retention, default_pool, epoch,
                halted, ttl_floor, ttl_ceiling, lanes, restricted, limited, created_at)
            select
                _project_queue.queue_id, data ->> 'name', data ->> 'durability', c.aging_interval,
                (data ->> 'request_retention')::interval, 'local', 0, false, c.ttl_floor,
                c.ttl_ceiling, '{}', false, false, _project_queue.at
            from eve.contract as c;
            insert into eve.keeper (queue_id) values (_project_queue.queue_id);
            insert into eve.pool (queue_id, pool, slots, numbers, paused)
            select _project_queue.queue_id, 'local', c.local_leases, c.local_leases, false from eve.contract as c;
            insert into eve.free_slot (queue_id, pool, number)
            select _project_queue.queue_id, 'local', n.number
            from eve.contract as c
            cross join pg_catalog.generate_series(1, c.local_leases) as n (number);
        when 'class_defined' then
            insert into eve.class_revision (
                queue_id, class_id, revision, policy, preset, document, digest, answers, actor, at)
            values (
                _project_queue.queue_id, (data ->> 'class_id')::integer, (data ->> 'revision')::integer,
                pg_catalog.jsonb_populate_record(null::eve.policy, data -> 'policy'),
                data ->> 'preset', data -> 'document', pg_catalog.decode(data ->> 'digest', 'hex'),
                data -> 'answers', _project_queue.actor, _project_queue.at);
            if (data ->> 'revision')::integer = 1 then
                insert into eve.work_class (queue_id, class_id, name, lane, revision, paused)
                values (
                    _project_queue.queue_id, (data ->> 'class_id')::integer, data ->> 'class',
                    (data ->> 'lane')::smallint, 1, false);
                -- Rates begin here. No tally of a class is older than the class.
                insert into eve.total (
                    queue_id, class_id, tx, at, held, ready, leased, uncertain, reported, completed,
                    quarantined, queued_bytes, live_bytes, arrivals, completions)
                values (
                    _project_queue.queue_id, (data ->> 'class_id')::integer,
                    pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()), _project_queue.at,
                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            else
                update eve.work_class as k set revision = (data ->> 'revision')::integer
                where k.queue_id = _project_queue.queue_id
                    and k.class_id = (data ->> 'class_id')::integer;
                perform eve._fit_keys(queue_id, (data ->> 'class_id')::integer, true);
            end if;
            perform eve._summarise_classes(queue_id);
        when 'pool_defined' then
            insert into eve.pool (queue_id, pool, slots, paused, classes)
            values (_project_queue.queue_id, data ->> 'pool', 0, false, array(
                select x.name from pg_catalog.jsonb_array_elements_text(data -> 'classes') as x (name)));
            update eve.pool as p set classes = null
            where p.queue_id = _project_queue.queue_id and p.pool = data ->> 'pool' and p.classes = '{}';
            perform eve._summarise_classes(queue_id);
        when 'access_granted' then
            insert into eve.access (queue_id, role, capability, principal, granted_at)
            values (
                _project_queue.queue_id, data ->> 'role', data ->> 'capability', data ->> 'principal',
                _project_queue.at)
            on conflict on constraint access_pkey do update
            set principal = excluded.principal, granted_at = excluded.granted_at;
        when 'access_revoked' then
            delete from eve.access as a
            where a.queue_id = _project_queue.queue_id
                and a.role = data ->> 'role' and a.capability = data ->> 'capability';
        when 'decision_proposed' then
            insert into eve.decision (
                queue_id, decision, kind, subject, item, token, digest, phase, proposer, proposed_at, expires_at)
            values (
                _project_queue.queue_id, (data ->> 'decision')::bigint, data ->> 'kind',
                data -> 'subject', (data ->> 'item')::bigint, (data ->> 'token')::bigint, data ->> 'digest',
                'open', _project_queue.actor,
                _project_queue.at, (data ->> 'expires_at')::timestamptz);
        when 'decision_accepted', 'decision_declined' then
            update eve.decision as d
            set phase = pg_catalog.substr(_project_queue.kind, 10),
                decider = _project_queue.actor,
                decided_at = _project_queue.at,
                answer = data -> 'answer',
                granted = (data ->> 'grant')::numeric
            where d.queue_id = _project_queue.queue_id and d.decision = (data ->> 'decision')::bigint;
            if data ? 'slots' then
                perform eve._resize_pool(queue_id, data ->> 'pool', (data ->> 'slots')::integer,
                    (data ->> 'decision')::bigint);
                if (data ->> 'default_pool')::boolean then
                    update eve.queue as q set default_pool = data ->> 'pool'
                    where q.queue_id = _project_queue.queue_id;
                end if;
            end if;
        when 'decision_consumed' then
            update eve.decision as d set consumed_at = _project_queue.at
            where d.queue_id = _project_queue.queue_id and d.decision = (data ->> 'decision')::bigint;
        when 'halted', 'resumed' then
            update eve.queue as q set halted = _project_queue.kind = 'halted'
            where q.queue_id = _project_queue.queue_id;
        when 'paused', 'unpaused' then
            update eve.work_class as k set paused = _project_queue.kind = 'paused'
            where k.queue_id = _project_queue.queue_id and k.name = data ->> 'class';
            update eve.pool as p set paused = _project_queue.kind = 'paused'
            where p.queue_id = _project_queue.queue_id and p.pool = data ->> 'pool';
            perform eve._summarise_classes(queue_id);
        when 'epoch_started' then
            update eve.queue as q set epoch = _project_queue.epoch
            where q.queue_id = _project_queue.queue_id;
        else
            null;
    end case;
end
$$;

comment on function eve._project_queue(bigint, integer, text, timestamptz, text, text, bigint, jsonb) is
'Apply one event of item 0 to the projections queue, work_class, class_revision, pool, free_slot, access and decision.';

commit;
