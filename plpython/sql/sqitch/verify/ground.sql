-- The language is there, and its Python has the library.
begin;

do language plpython3u $$
import jsonschema
$$;

rollback;
