-- acquire/dependency_known.sql · gate: unknown_dependency
begin;

create function eve._gate_dependency_known(door eve.door)
returns boolean
language sql
immutable
return coalesce(pg_catalog.cardinality((door).unknown_edges) > 0, false);

comment on function eve._gate_dependency_known(eve.door) is
'Gate unknown_dependency: true refuses. An open edge names no item of the queue.';

commit;
