-- admit/lineage.sql · check: a child is submitted under a live lease, within the depth and fan-out of the parent's class.
begin;

create type eve.lineage as (
    parent bigint,
    root bigint,
    depth smallint,
    fault text
);

comment on type eve.lineage is 'The parent of a submission, the top of its tree, its depth, and the reason to reject it, if any.';

create function eve._lineage(c eve.caller, under public.eve_lease)
returns eve.lineage
language plpgsql
as $$
declare
    l eve.lineage;
    h eve.held;
    policy eve.policy;
    parent record;
begin
    l.depth := 0;
    if under is null then
        return l;
    end if;
    h := eve._fence_write(c, under.item, under.token);
    l.parent := under.item;
    l.root := eve._root_of(c.queue_id, under.item);
    if h.fault is not null then
        l.fault := 'lease_not_live';
        return l;
    end if;
    select i.depth, i.class_id into parent
    from eve.intent as i
    where i.queue_id = c.queue_id and i.item = under.item;
    l.depth := (parent.depth + 1)::smallint;
    policy := eve._policy(c.queue_id, parent.class_id, null);
    if l.depth > policy.child_depth or (
        select pg_catalog.count(*) from (
            select from eve.intent as i
            where i.queue_id = c.queue_id and i.parent = under.item limit policy.child_fan_out
        ) as children) >= policy.child_fan_out then
        l.fault := 'lineage_limit';
    end if;
    return l;
end
$$;

comment on function eve._lineage(eve.caller, public.eve_lease) is
'Fence-check the parent of a child in the same transaction: a zombie cannot spawn work. Faults: lease_not_live, lineage_limit.';

commit;
