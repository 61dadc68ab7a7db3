-- api/arguments.sql · malformed arguments are refused before anything is stored: 22004, 22023, P0002.
begin;

create function eve._check_text(name text, value text, bytes integer, required boolean)
returns void
language plpgsql
immutable
as $$
begin
    if value is null then
        if required then
            perform eve._raise('22004', pg_catalog.format('%s is null', name),
                pg_catalog.jsonb_build_object('argument', name), 'Pass a short text.');
        end if;
    elsif pg_catalog.octet_length(value) not between 1 and bytes or value ~ '[[:cntrl:]]' then
        perform eve._raise('22023',
            pg_catalog.format('%s is empty, longer than %s bytes or has control characters', name, bytes),
            pg_catalog.jsonb_build_object('argument', name, 'bytes', pg_catalog.octet_length(value)),
            'Pass a short text without control characters.');
    end if;
end
$$;

comment on function eve._check_text(text, text, integer, boolean) is
'Refuse a text argument that is null (22004), empty, too long or has control characters (22023).';

create function eve._check_instant(name text, value timestamptz)
returns void
language plpgsql
immutable
as $$
begin
    if value < timestamptz '0001-01-02 00:00+00' or value >= timestamptz '9999-12-31 00:00+00' then
        perform eve._raise('22023', pg_catalog.format('%s is infinite or not in the years 1 to 9999', name),
            pg_catalog.jsonb_build_object('argument', name), 'Pass a finite instant, or none.');
    end if;
end
$$;

comment on function eve._check_instant(text, timestamptz) is
'Refuse an infinite instant, and one that not every client can represent (22023).';

create function eve._check_evidence(evidence jsonb)
returns jsonb
language plpgsql
stable
as $$
declare
    list jsonb := case pg_catalog.jsonb_typeof(evidence)
        when 'object' then pg_catalog.jsonb_build_array(evidence) else evidence end;
    normal jsonb := '[]';
    e jsonb;
    at timestamptz;
    fault text;
begin
    if list is null or list = '[]' then
        return null;
    end if;
    if pg_catalog.octet_length(list::text) > 65536 then
        fault := 'evidence is larger than 64 KiB';
    elsif pg_catalog.jsonb_typeof(list) <> 'array' or pg_catalog.jsonb_array_length(list) > 100 then
        fault := 'evidence is no list of at most 100 objects';
    end if;
    for e in
        select a.value
        from pg_catalog.jsonb_array_elements(case when fault is null then list else '[]' end) as a (value)
    loop
        fault := case
            when pg_catalog.jsonb_typeof(e) <> 'object' then 'evidence is no list of objects'
            when exists (
                select from pg_catalog.jsonb_object_keys(e) as k (key)
                where k.key not in ('kind', 'uri', 'digest', 'command', 'exit', 'at', 'note'))
                then 'evidence has a key that is unknown'
            when pg_catalog.jsonb_typeof(e -> 'kind') is distinct from 'string'
                or pg_catalog.octet_length(e ->> 'kind') not between 1 and 200 or e ->> 'kind' ~ '[[:cntrl:]]'
                then 'evidence has no kind that is a short text'
            when exists (
                select from pg_catalog.jsonb_each(e) as f (key, value)
                where f.key in ('uri', 'digest', 'command', 'note', 'at')
                    and pg_catalog.jsonb_typeof(f.value) not in ('string', 'null'))
                then 'evidence has a field that is not a text'
            when pg_catalog.octet_length(e ->> 'uri') not between 1 and 4096 or e ->> 'uri' ~ '[[:cntrl:]]'
                then 'evidence has a uri that is empty or long'
            when pg_catalog.octet_length(e ->> 'digest') not between 1 and 512 or e ->> 'digest' ~ '[[:cntrl:]]'
                then 'evidence has a digest that is empty or long'
            when pg_catalog.jsonb_typeof(e -> 'exit') not in ('number', 'null')
                then 'evidence has an exit that is no integer'
            when (e ->> 'exit')::numeric <> pg_catalog.trunc((e ->> 'exit')::numeric)
                or pg_catalog.abs((e ->> 'exit')::numeric) > 2147483647 then 'evidence has an exit that is no integer'
            -- An instant says its offset: nothing depends on the session.
            when e ->> 'at' !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$'
                then 'evidence has an at that is no instant with its offset'
        end;
        exit when fault is not null;
        if e ->> 'at' is not null then
            begin
                at := (e ->> 'at')::timestamptz;
            exception when data_exception then
                fault := 'evidence has an at that does not exist';
            end;
            exit when fault is not null;
            perform eve._check_instant('evidence.at', at);
            e := e || pg_catalog.jsonb_build_object('at',
                pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
        end if;
        normal := normal || eve._strip(e);
    end loop;
    if fault is not null then
        perform eve._raise('22023', fault, '{"argument": "evidence"}',
            'Pass {"kind": "…"} or a list of such objects; uri, digest, command, exit, at and note may be added.');
    end if;
    return normal;
end
$$;

comment on function eve._check_evidence(jsonb) is
'Evidence as a typed list: objects with a kind, and where known uri, digest, command, exit, at and note; one object is a list of one, no object is none. Refuses everything else with 22023.';

create function eve._class_id(c eve.caller, class text)
returns integer
language plpgsql
stable
as $$
declare
    class_id integer;
begin
    perform eve._check_text('class', class, 200, true);
    select k.class_id into class_id from eve.work_class as k
    where k.queue_id = c.queue_id and k.name = class;
    if not found and class = 'default' then
        perform eve._raise('22023', 'the queue has no class "default"',
            pg_catalog.jsonb_build_object('class', class),
            pg_catalog.format('Run: select eve_define_class(%L, ''default'', replay_class => ''safe'');', c.queue));
    elsif not found then
        perform eve._raise('P0002', pg_catalog.format('unknown class "%s"', class),
            pg_catalog.jsonb_build_object('class', class), 'Define it with eve_define_class.');
    end if;
    return class_id;
end
$$;

comment on function eve._class_id(eve.caller, text) is
'The class of that name; 22023 with the line to run when the queue has no default class, P0002 for another unknown one.';

commit;
