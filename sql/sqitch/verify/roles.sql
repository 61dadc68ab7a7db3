-- All seven are there, and none can log in.
begin;

select 1 / (count(*) = 7)::int
from pg_catalog.pg_roles
where rolname in (
    'eve_owner', 'eve_producer', 'eve_worker', 'eve_verifier',
    'eve_operator', 'eve_human', 'eve_auditor'
) and not rolcanlogin and not rolsuper;

rollback;
