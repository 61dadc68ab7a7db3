-- queue/decision.sql · what a human was asked: spend, waiver, policy, approval, import. Open, then accepted or declined, final.
begin;

create sequence eve.decision_seq as bigint;

comment on sequence eve.decision_seq is 'Decision ids.';

create function eve._more_spend(kind text, subject jsonb)
returns boolean
language sql
immutable
return _more_spend.kind = 'spend' and not _more_spend.subject ? 'pool';

comment on function eve._more_spend(text, jsonb) is
'Whether the queue itself asked for more spend of an item or a tree: what others propose names a pool, whatever else its subject says.';

create function eve._bound(kind text, item bigint, token bigint, digest text)
returns boolean
language plpgsql
immutable
parallel safe
as $$
begin
    -- A call, not an expression: a constraint's expression is planned anew by every statement.
    if kind = 'approval' and item is not null then
        return token is not null and (digest ~ '^[0-9a-f]{64}$') is true;
    end if;
    return token is null and digest is null;
end
$$;

comment on function eve._bound(text, bigint, bigint, text) is
'Whether a decision is bound as its kind wants: an approval about an item to a token and to the digest of one action, nothing else to either.';

create table eve.decision (
    queue_id bigint not null,
    decision bigint not null,
    kind text not null,
    subject jsonb not null,
    item bigint,
    token bigint,
    digest text,
    phase text not null,
    proposer text not null,
    proposed_at timestamptz not null,
    expires_at timestamptz,
    decider text,
    decided_at timestamptz,
    answer jsonb,
    consumed_at timestamptz,
    granted numeric,
    constraint decision_pkey primary key (queue_id, decision),
    constraint decision_kind_is_known check (kind in ('spend', 'waiver', 'policy', 'approval', 'import')),
    constraint decision_phase_is_known check (phase in ('open', 'accepted', 'declined')),
    constraint decision_is_bound_to_one_action
    check (eve._bound(kind, item, token, digest)),
    constraint decision_is_decided_by_somebody
    check ((phase = 'open') = (decider is null) and (decider is null) = (decided_at is null))
);

create index decision_root on eve.decision (queue_id, (subject ->> 'root')) where kind = 'spend';
create index decision_item on eve.decision (queue_id, item) where item is not null;

comment on table eve.decision is
'The decisions of a queue, folded from its events under item 0. An approval about an item names the token it was asked under and the digest of the action; granted is what a human added to a limit of spend.';

commit;
