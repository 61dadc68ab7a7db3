-- acquire/dependency_acyclic.sql · gate: dependency_cycle
begin;

create function eve._gate_dependency_acyclic(door eve.door)
returns boolean
language sql
immutable
return coalesce(pg_catalog.cardinality((door).cycle) > 0, false);

comment on function eve._gate_dependency_acyclic(eve.door) is
'Gate dependency_cycle: true refuses. Open edges lead from the item back to it.';

commit;
