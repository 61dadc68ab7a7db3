-- acquire/dependency_ready.sql · gate: dependency_not_ready
begin;

create function eve._gate_dependency_ready(door eve.door)
returns boolean
language sql
immutable
return coalesce(pg_catalog.cardinality((door).open_edges) > 0, false);

comment on function eve._gate_dependency_ready(eve.door) is
'Gate dependency_not_ready: true refuses. A known dependency is neither verified nor waived.';

commit;
