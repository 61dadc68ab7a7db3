-- queue/decision.sql · what a human was asked: spend, waiver, policy, approval, import. Open, then accepted or declined, final.
begin;

create sequence eve.decision_seq as bigint;

comment on sequence eve.decision_seq is 'Decision ids.';

create table eve.decision (
    queue_id bigint not null,
    decision bigint not null,
    kind text not null,
    subject jsonb not null,
    item bigint,
    phase text not null,
    proposer text not null,
    proposed_at timestamptz not null,
    expires_at timestamptz,
    decider text,
    decided_at timestamptz,
    answer jsonb,
    consumed_at timestamptz,
    constraint decision_pkey primary key (queue_id, decision),
    constraint decision_kind_is_known check (kind in ('spend', 'waiver', 'policy', 'approval', 'import')),
    constraint decision_phase_is_known check (phase in ('open', 'accepted', 'declined')),
    constraint decision_is_decided_by_somebody
    check ((phase = 'open') = (decider is null) and (decider is null) = (decided_at is null))
);

create index decision_item on eve.decision (queue_id, item) where item is not null;

comment on table eve.decision is
'The decisions of a queue, folded from its events under item 0.';

commit;
