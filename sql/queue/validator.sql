-- queue/validator.sql · the door to the payload validator, which is an extension of its own and may be absent.
begin;

create function eve._validator()
returns boolean
language plpgsql
stable
as $$
begin
    return pg_catalog.to_regprocedure('eve._jsonschema_faults(jsonb, bytea, jsonb)') is not null;
end
$$;

comment on function eve._validator() is
'Whether payload schemas can be checked here: extension eve_plpython is installed.';

create function eve._schema_digest(schema jsonb)
returns text
language sql
immutable
strict
return pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(schema::text, 'UTF8')), 'hex');

comment on function eve._schema_digest(jsonb) is 'The digest by which a policy names its schema; null for none.';

create function eve._schema_verdict(schema jsonb)
returns text
language plpgsql
stable
as $$
declare
    -- By name, from a variable: the function belongs to another extension.
    called text := 'select eve._schema_fault($1)';
    fault text;
begin
    if eve._validator() then
        execute called into fault using schema;
        return 'schema is not valid: ' || pg_catalog.left(fault, 500);
    end if;
    return null;
end
$$;

comment on function eve._schema_verdict(jsonb) is
'Why a document is no JSON Schema (2020-12); null when it is one, and when no validator is installed.';

create function eve._payload_faults(schema jsonb, digest text, payload jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    called text := 'select eve._jsonschema_faults($1, $2, $3)';
    faults jsonb;
begin
    if not eve._validator() then
        return null;
    end if;
    execute called into faults using schema, pg_catalog.decode(digest, 'hex'), payload;
    return coalesce(faults, '[]');
end
$$;

comment on function eve._payload_faults(jsonb, text, jsonb) is
'The faults of a payload under a schema as [{path, message}], an empty list when it is valid; null when no validator is installed: that is never a pass.';

commit;
