-- api/create_queue.sql · begin a queue, define its classes and pools. Appends under item 0: queue_created, access_granted, class_defined, pool_defined.
begin;

create function eve._answers(preset text, document jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    given jsonb := (select p.policy from eve.preset as p where p.preset = _answers.preset);
    said jsonb := pg_catalog.jsonb_strip_nulls((document - 'schema'::text)
        || pg_catalog.jsonb_build_object('schema', eve._schema_digest(document -> 'schema')));
begin
    -- A null takes a preset's setting away; it answers nothing.
    given := given - array(select k.key from pg_catalog.jsonb_each(document) as k (key, value)
        where k.value = 'null');
    return (
        select pg_catalog.jsonb_object_agg(f.field, pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
            'answered_by', case
                when said -> 'declared' ? f.field or said ?| f.settings then 'policy'
                when given -> 'declared' ? f.field or given ?| f.settings then 'preset ' || _answers.preset
                when f.engine then 'engine'
            end,
            'declared', coalesce(said -> 'declared' -> f.field, given -> 'declared' -> f.field),
            'settings', (
                select pg_catalog.jsonb_object_agg(s.name, v.value)
                from pg_catalog.unnest(f.settings) as s (name)
                cross join lateral (select coalesce(said -> s.name, given -> s.name)) as v (value)
                where v.value is not null))))
        from eve.policy_field as f);
end
$$;

comment on function eve._answers(text, jsonb) is
'The twenty-two fields of a class''s contract: who answered each (policy, preset by name, engine; absent when nobody did) and with what.';

create function eve._unanswered_questions(preset text, document jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    answers jsonb := eve._answers(preset, document);
begin
    return (
        select coalesce(pg_catalog.jsonb_object_agg(q.number, q.question), '{}')
        from eve.question as q
        where exists (
            select from pg_catalog.unnest(q.fields) as f (name)
            where answers -> f.name ->> 'answered_by' is null)
            -- Reconcilable work names the record that is looked up before a retry.
            or q.number = 10 and document ->> 'replay_class' = 'reconcilable'
                and document -> 'protection' -> 'observations' is null
                and document -> 'declared' -> 'repetition_policy' is null);
end
$$;

comment on function eve._unanswered_questions(text, jsonb) is
'Those of the twenty-one questions to which neither policy nor preset nor engine has an answer, by number.';

create function eve._define_class(c eve.caller, class text, preset text, document jsonb)
returns eve.appended
language plpgsql
as $$
declare
    policy eve.policy := eve._policy_of(preset, document);
    id integer;
    next_revision integer;
    lane smallint;
    known boolean;
begin
    perform eve._check_text('class', class, 200, true);
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    select k.class_id, k.revision + 1, k.lane into id, next_revision, lane
    from eve.work_class as k where k.queue_id = c.queue_id and k.name = class;
    known := found;
    if not known then
        select coalesce(max(k.class_id), 0) + 1 into id from eve.work_class as k where k.queue_id = c.queue_id;
        next_revision := 1;
        -- A class that can be blocked apart from the others gets a lane of its own, as long as there is one.
        select (case when not policy.own_lane and policy.pools is null then 1
            else least(coalesce(max(k.lane) filter (where k.lane > 1), 1) + 1, 16) end)::smallint
        into lane from eve.work_class as k where k.queue_id = c.queue_id;
    end if;
    return eve._queue_event(c, 'class_defined', pg_catalog.jsonb_build_object(
        'class', class, 'class_id', id, 'revision', next_revision, 'lane', lane, 'preset', preset,
        'document', document, 'policy', pg_catalog.to_jsonb(policy),
        'digest', pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
            preset || ':' || document::text, 'UTF8')), 'hex'),
        'answers', eve._answers(preset, document),
        'unanswered', eve._unanswered_questions(preset, document)));
end
$$;

comment on function eve._define_class(eve.caller, text, text, jsonb) is
'Give a class its next immutable policy revision; the event says who answered each field and which questions nobody answered.';

create function public.eve_create_queue(
    queue text,
    replay_class text default null,
    durability text default 'required',
    request_retention interval default '30 days',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
set intervalstyle to postgres
as $$
declare
    c eve.caller;
    answer eve.act_answer;
    appended eve.appended;
    capability text;
    create_print bytea;
    prior record;
begin
    perform pg_current_xact_id();
    perform eve._check_text('queue', queue, 200, true);
    if eve_create_queue.durability is null or eve_create_queue.durability not in ('required', 'platform', 'any') then
        perform eve._raise('22023', 'durability is not required, platform or any', '{"argument": "durability"}',
            'Use required in production; any is for tests and demonstrations.');
    end if;
    if (request_retention between interval '7 days' and interval '1000 years') is not true then
        perform eve._raise('22023', 'request_retention is not between 7 days and 1000 years',
            '{"argument": "request_retention"}', 'Keys are kept at least 7 days.');
    end if;
    c.actor := eve._actor();
    c.principal := c.actor;
    c.queue := eve_create_queue.queue;
    c.queue_id := nextval('eve.queue_id_seq');
    c.epoch := 0;
    c.durability := eve_create_queue.durability;
    perform eve._durable(c);
    create_print := eve._fingerprint('eve_create_queue', eve._text(queue), eve._text(replay_class),
        eve._text(eve_create_queue.durability), interval_send(eve_create_queue.request_retention));
    begin
        appended := eve._append(c, 0, 'queue_created', eve._clock(c), data => jsonb_build_object(
            'name', eve_create_queue.queue, 'durability', eve_create_queue.durability,
            'request_retention', request_retention::text));
    exception when unique_violation then
        appended := null;
    end;
    select r.answer, r.fingerprint = create_print as same into prior
    from eve.queue as q
    left join eve.request as r
        on r.queue_id = q.queue_id and r.principal = c.principal and r.key = idempotency_key
    where q.name = eve_create_queue.queue and appended.version is null;
    if found and prior.same then
        answer := jsonb_populate_record(null::eve.act_answer, prior.answer);
        answer.replayed := true;
        return answer;
    elsif found and prior.same = false then
        perform eve._refuse('idempotency_conflict', eve_create_queue.queue, null);
    elsif found then
        perform eve._raise('42710', format('queue "%s" exists', eve_create_queue.queue), null,
            'Choose another name, or use the queue.');
    end if;
    foreach capability in array array['operator', 'producer', 'worker', 'auditor'] loop
        perform eve._append(c, 0, 'access_granted', eve._clock(c), data => jsonb_build_object(
            'role', c.actor, 'capability', capability));
    end loop;
    if replay_class is not null then
        appended := eve._define_class(c, 'default', 'job', jsonb_build_object('replay_class', replay_class));
    end if;
    answer := eve._acted(0, appended, jsonb_build_object('queue', eve_create_queue.queue));
    if idempotency_key is not null then
        c.request_retention := eve_create_queue.request_retention;
        perform eve._request_open(c, idempotency_key, 'eve_create_queue', create_print);
    end if;
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_create_queue(text, text, text, interval, text) is
'Create a queue with pool local; with a replay class also class default from preset job. Its creator becomes operator, producer, worker and auditor of it, never human. Refuses a taken name (42710).';

create function public.eve_define_class(
    queue text,
    class text,
    preset text default 'job',
    replay_class text default null,
    policy jsonb default '{}',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
set intervalstyle to postgres
as $$
declare
    c eve.caller;
    answer eve.act_answer;
    appended eve.appended;
    document jsonb;
begin
    c := eve._enter(queue, '{operator}');
    if preset is null or policy is null then
        perform eve._raise('22004', 'preset or policy is null', null,
            'Leave them out, or pass a preset and an object.');
    end if;
    document := policy || jsonb_strip_nulls(jsonb_build_object('replay_class', replay_class));
    answer := eve._act_replay(c, idempotency_key, 'eve_define_class', eve._fingerprint('eve_define_class',
        eve._text(queue), eve._text(class), eve._text(preset), eve._text(document)));
    if answer.done is not null then
        return answer;
    end if;
    appended := eve._define_class(c, class, preset, document);
    -- A new revision may answer what items wait for.
    perform eve._reconsider(c, class);
    return eve._act_keep(c, idempotency_key, eve._acted(0, appended, (
        select jsonb_build_object('class', k.name, 'revision', k.revision,
            'unanswered', eve._unanswered_questions(preset, document))
        from eve.work_class as k
        where k.queue_id = c.queue_id and k.name = eve_define_class.class)));
end
$$;

comment on function public.eve_define_class(text, text, text, text, jsonb, text) is
'Give a class a new immutable policy revision from a preset and a document of fields (attributes of eve.policy; schema: a JSON Schema 2020-12; declared: answers in words). The detail names the questions that stay unanswered; only the replay class must be said. Refuses unknown fields and values out of range (22023). Items that waited for a policy are looked at again.';

create function eve._reconsider(c eve.caller, class text)
returns integer
language plpgsql
as $$
declare
    item bigint;
    at timestamptz := eve._clock(c);
    released integer := 0;
begin
    foreach item in array eve._stale(c.queue_id, array(
        select distinct h.item
        from eve.hold as h
        join eve.intent as i on i.queue_id = h.queue_id and i.item = h.item
        join eve.work_class as k on k.queue_id = i.queue_id and k.class_id = i.class_id
        where h.queue_id = c.queue_id and h.trigger in ('policy', 'observation', 'health', 'validator', 'effect')
            and k.name = _reconsider.class), at)
    loop
        if eve._lock_holds(c, item, true) and eve._rederive(c, item, at, 'policy revision') then
            released := released + 1;
        end if;
    end loop;
    return released;
end
$$;

comment on function eve._reconsider(eve.caller, text) is
'Release the items of a class that waited for a policy which now answers.';

create function public.eve_define_pool(
    queue text,
    pool text,
    classes text[] default null,
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
begin
    c := eve._enter(queue, '{operator}');
    perform eve._check_text('pool', eve_define_pool.pool, 200, true);
    if eve._short_names(eve_define_pool.classes, 1000) is false then
        perform eve._raise('22023', 'classes is not a list of short names', '{"argument": "classes"}',
            'Pass the classes that alone may run there, or none for all.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_define_pool', eve._fingerprint('eve_define_pool',
        eve._text(queue), eve._text(eve_define_pool.pool), eve._text(eve_define_pool.classes)));
    if answer.done is not null then
        return answer;
    end if;
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    if exists (select from eve.pool as p where p.queue_id = c.queue_id and p.pool = eve_define_pool.pool) then
        perform eve._raise('42710', format('pool "%s" exists', eve_define_pool.pool), null, 'Use the pool.');
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(0,
        eve._queue_event(c, 'pool_defined', jsonb_strip_nulls(jsonb_build_object(
            'pool', eve_define_pool.pool, 'classes', to_jsonb(eve_define_pool.classes))))));
end
$$;

comment on function public.eve_define_pool(text, text, text[], text) is
'Define a pool, reserved for the classes named where any are. It admits nothing until a human accepted its spend. Refuses a taken name (42710).';

commit;
