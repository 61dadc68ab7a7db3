-- ground.sql · what must be there first. Refuses (55000) a database without the language, Python without jsonschema.
begin;

do $$
begin
    if not exists (select from pg_catalog.pg_language as l where l.lanname = 'plpython3u') then
        raise exception using
            errcode = '55000',
            message = 'language plpython3u is not in this database',
            hint = 'As a superuser: create extension plpython3u;';
    end if;
end
$$;

do language plpython3u $$
try:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
except ImportError as missing:
    plpy.error(
        "the server's Python has no jsonschema with Draft202012Validator",
        detail=str(missing),
        hint="Install jsonschema 4.10 or newer where the server finds it: on Debian, package python3-jsonschema.",
        sqlstate="55000",
    )
$$;

commit;
