-- admit/payload.sql · check: a payload is valid under the schema of the revision that judges it, or nobody can say.
begin;

create function eve._schema_of(queue_id bigint, class_id integer, revision integer)
returns jsonb
language sql
stable
begin atomic
    select r.document -> 'schema' from eve.class_revision as r
    where r.queue_id = _schema_of.queue_id and r.class_id = _schema_of.class_id
        and r.revision = _schema_of.revision;
end;

comment on function eve._schema_of(bigint, integer, integer) is 'The payload schema of a class revision, null when it declares none.';

create function eve._payload_under(schema jsonb, digest text, payload jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    faults jsonb;
begin
    if digest is null then
        return '{"verdict": "no schema declared"}';
    elsif payload is null then
        return '{"verdict": "purged"}';
    end if;
    faults := eve._payload_faults(schema, digest, payload);
    return case
        when faults is null then '{"verdict": "unavailable"}'
        when faults = '[]' then '{"verdict": "valid"}'
        else pg_catalog.jsonb_build_object('verdict', 'invalid', 'faults', faults)
    end;
end
$$;

comment on function eve._payload_under(jsonb, text, jsonb) is
'The verdict on a payload under a schema: valid, invalid with its faults, unavailable (never a pass), purged, or no schema declared.';

create function eve._payload_verdict(queue_id bigint, class_id integer, revision integer, digest text, payload jsonb)
returns jsonb
language plpgsql
stable
as $$
begin
    return eve._payload_under(
        case when digest is not null and payload is not null
            then eve._schema_of(queue_id, class_id, revision) end, digest, payload);
end
$$;

comment on function eve._payload_verdict(bigint, integer, integer, text, jsonb) is
'The verdict on a payload under the schema of a revision: valid, invalid with its faults, unavailable (never a pass), or no schema declared.';

create function eve._payload_now(queue_id bigint, item bigint)
returns jsonb
language sql
stable
begin atomic
    select eve._payload_verdict(k.queue_id, k.class_id, k.revision, (r.policy).schema_digest, i.payload)
    from eve.intent as i
    join eve.work_class as k on k.queue_id = i.queue_id and k.class_id = i.class_id
    join eve.class_revision as r
        on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
    where i.queue_id = _payload_now.queue_id and i.item = _payload_now.item;
end;

comment on function eve._payload_now(bigint, bigint) is
'The verdict on a stored payload under the present revision of its class.';

commit;
