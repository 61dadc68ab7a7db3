-- item/spend.sql · what items have spent, reported by their holders: insert-only, summed over an item and over its tree.
begin;

create table eve.spend (
    queue_id bigint not null,
    item bigint not null,
    version integer not null,
    root bigint not null,
    amount numeric not null,
    constraint spend_pkey primary key (queue_id, item, version),
    constraint spend_is_not_negative check (amount >= 0 and amount < 'infinity')
);

create index spend_root on eve.spend (queue_id, root);

comment on table eve.spend is
'Increments of spend by the event that reported them, in the unit that the class declares; root is the item at the top of the tree. Insert-only, so that no holder waits for another; folded from the ledger.';

create function eve._check_spend_amount(spend numeric)
returns void
language plpgsql
immutable
as $$
begin
    if (spend >= 0 and spend < 1e18 and pg_catalog.scale(spend) <= 12) is false then
        perform eve._raise('22023', 'spend is negative, not finite, too large or too fine', '{"argument": "spend"}',
            'Report what was spent since the last report, from 0 to 10^18 with at most 12 places.');
    end if;
end
$$;

comment on function eve._check_spend_amount(numeric) is
'Refuse a spend that is negative, not finite, from 10^18 on or finer than 12 places (22023).';

create function eve._root_of(queue_id bigint, item bigint)
returns bigint
language sql
stable
begin atomic
    select coalesce(i.root, i.item) from eve.intent as i
    where i.queue_id = _root_of.queue_id and i.item = _root_of.item;
end;

comment on function eve._root_of(bigint, bigint) is 'The item at the top of the tree that an item was submitted in.';

create function eve._spend_row(queue_id bigint, item bigint, version integer, amount numeric)
returns void
language plpgsql
as $$
begin
    if amount > 0 then
        insert into eve.spend (queue_id, item, version, root, amount)
        values (_spend_row.queue_id, _spend_row.item, _spend_row.version, eve._root_of(queue_id, item),
            _spend_row.amount);
    end if;
end
$$;

comment on function eve._spend_row(bigint, bigint, integer, numeric) is 'Index what an event says was spent.';

create function eve._spent(queue_id bigint, item bigint)
returns numeric
language sql
stable
begin atomic
    select coalesce(sum(s.amount), 0) from eve.spend as s
    where s.queue_id = _spent.queue_id and s.item = _spent.item;
end;

comment on function eve._spent(bigint, bigint) is 'What an item has spent.';

create function eve._spends(queue_id bigint)
returns table (item bigint, version integer, root bigint, amount numeric)
language sql
stable
begin atomic
    select l.item, l.version, eve._root_of(l.queue_id, l.item), (l.data ->> 'spend')::numeric
    from eve.ledger as l
    where l.queue_id = _spends.queue_id and l.item > 0
        and l.kind in ('renewed', 'completed', 'reported', 'failed', 'returned')
        and (l.data ->> 'spend')::numeric > 0;
end;

comment on function eve._spends(bigint) is 'What the events of a queue say was spent.';

create function eve._over_spend(queue_id bigint, item bigint, policy eve.policy)
returns jsonb
language plpgsql
stable
as $$
declare
    top bigint;
    spent numeric;
    allowed numeric;
begin
    if policy.spend_limit is null and policy.spend_tree_limit is null then
        return null;
    end if;
    top := eve._root_of(queue_id, item);
    if policy.spend_limit is not null then
        spent := eve._spent(queue_id, item);
        allowed := policy.spend_limit + coalesce((
            select pg_catalog.sum(d.granted) from eve.decision as d
            where d.queue_id = _over_spend.queue_id and d.item = _over_spend.item
                and eve._more_spend(d.kind, d.subject) and d.subject ->> 'scope' = 'item'), 0);
        if spent > allowed then
            return pg_catalog.jsonb_build_object('scope', 'item', 'root', top, 'spent', spent, 'limit', allowed,
                'grant', spent - allowed + greatest(policy.spend_limit, 1));
        end if;
    end if;
    if policy.spend_tree_limit is not null then
        spent := (
            select coalesce(pg_catalog.sum(s.amount), 0) from eve.spend as s
            where s.queue_id = _over_spend.queue_id and s.root = top);
        allowed := policy.spend_tree_limit + coalesce((
            select pg_catalog.sum(d.granted) from eve.decision as d
            where d.queue_id = _over_spend.queue_id and d.kind = 'spend' and eve._more_spend(d.kind, d.subject)
                and d.subject ->> 'root' = top::text and d.subject ->> 'scope' = 'tree'), 0);
        if spent > allowed then
            return pg_catalog.jsonb_build_object('scope', 'tree', 'root', top, 'spent', spent, 'limit', allowed,
                'grant', spent - allowed + greatest(policy.spend_tree_limit, 1));
        end if;
    end if;
    return null;
end
$$;

comment on function eve._over_spend(bigint, bigint, eve.policy) is
'Where an item or its tree has spent more than its class and the humans who were asked allow: what was spent, the limit, and the grant after which a whole limit is left; null where it has not.';

commit;
