-- api/settle_import.sql · take over work that another system finished. Appends: imported. Raises: terminal_state_not_owned.
begin;

create function public.eve_settle_import(
    queue text,
    decision bigint,
    work_id text,
    payload jsonb default '{}',
    class text default 'default',
    phase text default 'verified',
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
    answer eve.act_answer;
    appended eve.appended;
    of_class integer;
    k record;
    item bigint;
    at timestamptz;
    digest bytea;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, null, 'verifier');
    perform eve._check_text('work_id', eve_settle_import.work_id, 512, true);
    if eve_settle_import.work_id ^@ '~' then
        perform eve._raise('22023', 'work_id begins with "~"', '{"argument": "work_id"}',
            'Names that begin with "~" are given by the queue.');
    end if;
    if payload is null then
        perform eve._raise('22004', 'payload is null', '{"argument": "payload"}', 'Pass a JSON value, such as {}.');
    end if;
    if eve_settle_import.phase is null or eve_settle_import.phase not in ('verified', 'cancelled') then
        perform eve._raise('22023', 'phase is not verified or cancelled', '{"argument": "phase"}',
            'Everything else is submitted, not settled.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_settle_import', eve._fingerprint('eve_settle_import',
        eve._text(queue), int8send(eve_settle_import.decision), eve._text(eve_settle_import.work_id),
        eve._text(payload), eve._text(class), eve._text(eve_settle_import.phase), eve._text(evidence)));
    if answer.done is not null then
        return answer;
    end if;
    if not exists (
        select from eve.decision as d
        where d.queue_id = c.queue_id and d.decision = eve_settle_import.decision
            and d.kind = 'import' and d.phase = 'accepted') then
        perform eve._refuse('terminal_state_not_owned', c.queue, null, jsonb_build_object(
            'decision', eve_settle_import.decision, 'because', 'no import decision that a human accepted'));
    end if;
    of_class := eve._class_id(c, class);
    select w.lane, w.revision, r.policy into k
    from eve.work_class as w
    join eve.class_revision as r
        on r.queue_id = w.queue_id and r.class_id = w.class_id and r.revision = w.revision
    where w.queue_id = c.queue_id and w.class_id = of_class;
    if octet_length(payload::text) > (k.policy).payload_limit then
        perform eve._raise('22023', 'payload is larger than the class allows',
            jsonb_build_object('bytes', octet_length(payload::text), 'limit', (k.policy).payload_limit),
            'Shorten it, or raise payload_limit.');
    end if;
    perform eve._durable(c);
    at := eve._clock(c);
    item := nextval('eve.item_seq');
    digest := sha256(convert_to(payload::text, 'UTF8'));
    insert into eve.intent (
        queue_id, item, work_id, class_id, lane, payload, payload_size, payload_digest,
        operation_identity, effect_identity, cancellation_identity, requested_at, priority_class, replay_class,
        completion_test, depth, edges, derived, principal, submitted_at)
    values (
        c.queue_id, item, eve_settle_import.work_id, of_class, k.lane, payload,
        octet_length(payload::text), digest, class, class || ':' || eve_settle_import.work_id,
        eve_settle_import.work_id, at, 2,
        (k.policy).replay_class, (k.policy).completion_test, 0, 0,
        '{operation_identity,effect_identity,cancellation_identity,requested_at,replay_class,'
        'completion_test,priority_class}',
        c.principal, at)
    on conflict on constraint intent_work_id_is_unique do nothing;
    if not found then
        perform eve._raise('42710', format('work_id "%s" exists', left(eve_settle_import.work_id, 200)),
            jsonb_build_object('work_id', eve_settle_import.work_id),
            'A work_id names one item for ever; use an idempotency_key to import twice.');
    end if;
    appended := eve._append(c, item, 'imported', at,
        phase => eve_settle_import.phase, revision => k.revision, rank => 2::smallint,
        data => eve._strip(jsonb_build_object('class', class, 'digest', encode(digest, 'hex'),
            'size', octet_length(payload::text), 'decision', eve_settle_import.decision, 'evidence', evidence)));
    perform eve._name_known(c, item, eve_settle_import.work_id, at);
    answer := eve._acted(item, appended);
    answer.decision := eve_settle_import.decision;
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_settle_import(text, bigint, text, jsonb, text, text, jsonb, text) is
'Take over work that another system finished or cancelled, as verified or cancelled: by a verifier, under an import decision that a human accepted. Refuses others (terminal_state_not_owned) and a taken work_id (42710).';

commit;
