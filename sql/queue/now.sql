-- queue/now.sql · the only clock. Tests own it by replacing it as superuser.
begin;

create function eve.now()
returns timestamptz
language sql
volatile
return pg_catalog.clock_timestamp();

comment on function eve.now() is
'The only clock of eve, read anew at each call. Replace it as superuser in a test database to own the time.';

commit;
