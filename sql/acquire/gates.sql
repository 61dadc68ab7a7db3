-- acquire/gates.sql · all gates in contract order: the first that fails is the code, all that fail are the detail.
begin;

create function eve._gates(door eve.door)
returns text[]
language sql
immutable
return case
    when eve._gate_halt(door) or eve._gate_lease_ttl(door) or eve._gate_quarantine(door)
        or eve._gate_retry_budget(door) or eve._gate_acquirable(door) or eve._gate_spend(door)
        or eve._gate_concurrency(door) or eve._gate_dependency_known(door)
        or eve._gate_dependency_acyclic(door) or eve._gate_dependency_ready(door)
        or coalesce((door).named and (door).phase <> 'ready', false)
        then pg_catalog.array_remove(array[
            case when eve._gate_halt(door) then 'fleet_halted' end,
            case when eve._gate_lease_ttl(door) then 'lease_ttl_out_of_range' end,
            case when eve._gate_quarantine(door) then 'quarantined' end,
            case when eve._gate_retry_budget(door) then 'retry_budget_exhausted' end,
            case when eve._gate_acquirable(door) then 'not_acquirable' end,
            case when eve._gate_spend(door) then 'spend_not_approved' end,
            case when eve._gate_concurrency(door) then 'concurrency_exhausted' end,
            case when eve._gate_dependency_known(door) then 'unknown_dependency' end,
            case when eve._gate_dependency_acyclic(door) then 'dependency_cycle' end,
            case when eve._gate_dependency_ready(door) then 'dependency_not_ready' end,
            -- A held item whose gates all pass is still not granted.
            case when (door).named and (door).phase <> 'ready' and not eve._gate_acquirable(door)
                and not eve._gate_dependency_known(door) and not eve._gate_dependency_acyclic(door)
                and not eve._gate_dependency_ready(door) and (door).over_spend is null
                then 'not_acquirable' end
        ]::text[], null)
end;

comment on function eve._gates(eve.door) is
'The refusals of one acquisition in contract order, or null when every gate passes.';

create function eve._door_detail(door eve.door, codes text[])
returns jsonb
language sql
stable
return pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
    'refusals', pg_catalog.to_jsonb(_door_detail.codes),
    'phase', (door).phase,
    'blocked', (door).blocked,
    'saturated', (door).saturated,
    'attempts', case when 'retry_budget_exhausted' = any (_door_detail.codes) then (door).attempts end,
    'budget', case when 'retry_budget_exhausted' = any (_door_detail.codes) then (door).budget end,
    'ttl_floor_s', case when 'lease_ttl_out_of_range' = any (_door_detail.codes)
        then extract(epoch from (door).ttl_floor) end,
    'ttl_ceiling_s', case when 'lease_ttl_out_of_range' = any (_door_detail.codes)
        then extract(epoch from (door).ttl_ceiling) end,
    'spend', (door).over_spend,
    'slots', case when 'concurrency_exhausted' = any (_door_detail.codes) then (door).slots end,
    'unknown', pg_catalog.to_jsonb(nullif((door).unknown_edges, '{}')),
    'cycle', pg_catalog.to_jsonb(nullif((door).cycle, '{}')),
    'open', pg_catalog.to_jsonb(nullif((door).open_edges, '{}'))
));

comment on function eve._door_detail(eve.door, text[]) is
'The facts behind a refusal, machine-readable.';

commit;
