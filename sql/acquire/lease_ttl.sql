-- acquire/lease_ttl.sql · gate: lease_ttl_out_of_range
begin;

create function eve._gate_lease_ttl(door eve.door)
returns boolean
language sql
immutable
return (
    (door).ttl is not null and (
        not pg_catalog.isfinite((door).ttl)
        or (door).ttl < (door).ttl_floor
        or (door).ttl > (door).ttl_ceiling)
);

comment on function eve._gate_lease_ttl(eve.door) is
'Gate lease_ttl_out_of_range: true refuses. The ttl asked for is outside the policy window.';

commit;
