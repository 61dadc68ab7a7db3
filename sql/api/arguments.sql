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
