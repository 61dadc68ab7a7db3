-- vocabulary/reason.sql · why an admission was decided as it was, and what a held item waits for. Closed; extended, never reused.
begin;

create table eve.reason (
    reason text not null,
    decision text not null,
    owner text,
    trigger text,
    meaning text not null,
    constraint reason_pkey primary key (reason, decision),
    constraint reason_decision_is_known
    check (decision in ('ADMIT', 'REJECT', 'EXPIRE', 'COALESCE', 'HOLD')),
    constraint reason_hold_names_owner_and_trigger
    check ((decision = 'HOLD') = (owner is not null and trigger is not null)),
    constraint reason_trigger_is_known
    check (
        trigger in ('time', 'dependency', 'decision', 'observation', 'health', 'reconciliation',
            'policy', 'validator', 'effect', 'key')
    )
);

comment on table eve.reason is
'The typed reasons of admission decisions and holds, each hold with its default owner and the trigger that releases it. Source: contract, section 4.';

insert into eve.reason (reason, decision, owner, trigger, meaning) values
('intent_cancelled', 'REJECT', null, null, 'its cancellation identity was cancelled before'),
('item_budget_exhausted', 'REJECT', null, null, 'the class holds as many items as it may'),
('byte_budget_exhausted', 'REJECT', null, null, 'the class holds as many bytes as it may'),
('payload_invalid', 'REJECT', null, null, 'the payload does not validate under the class''s schema'),
('payload_too_large', 'REJECT', null, null, 'the payload is larger than the class allows'),
('class_not_authorised', 'REJECT', null, null, 'the class accepts no submissions from this principal'),
('effect_already_observed', 'REJECT', null, null, 'the effect was observed before'),
('work_id_taken', 'REJECT', null, null, 'the work_id names another item of the queue'),
('decision_declined', 'REJECT', null, null, 'the decision it would wait for was declined'),
('lease_not_live', 'REJECT', null, null, 'a child was submitted under a lease that is not live'),
('lineage_limit', 'REJECT', null, null, 'the parent''s class allows no more or no deeper children'),
('age_budget_exceeded', 'REJECT', null, null, 'the oldest eligible item is older than the class allows'),
('deadline_passed', 'EXPIRE', null, null, 'the deadline, less the completion margin, is over'),
('deadline_infeasible', 'EXPIRE', null, null, 'it cannot start early enough to finish before its deadline'),
('value_window_ended', 'EXPIRE', null, null, 'nobody needs the result any more'),
('equivalent_waiting', 'COALESCE', null, null, 'a waiting item already represents the same demand'),
('protection_shorter_than_life', 'ADMIT', null, null, 'the destination''s protection may end before the item does'),
('capacity_evidence_missing', 'HOLD', 'operator', 'observation', 'no capacity observation'),
('capacity_evidence_stale', 'HOLD', 'operator', 'observation', 'the capacity observation is too old'),
('age_budget_exceeded', 'HOLD', 'operator', 'observation', 'the oldest eligible item is older than the class allows'),
('dependency_unhealthy', 'HOLD', 'operator', 'health', 'an outside dependency is unhealthy'),
('dependency_saturated', 'HOLD', 'operator', 'health', 'an outside dependency is saturated'),
('unknown_dependency', 'HOLD', 'producer', 'dependency', 'a dependency names no item of this queue'),
('dependency_cycle', 'HOLD', 'human', 'dependency', 'its dependencies form a cycle'),
('dependency_not_ready', 'HOLD', 'queue', 'dependency', 'a dependency is not verified'),
('replay_class_unknown', 'HOLD', 'operator', 'policy', 'nobody said what a repetition may do'),
('validator_unavailable', 'HOLD', 'operator', 'validator', 'the payload validator is not installed'),
('not_before', 'HOLD', 'queue', 'time', 'its time has not come'),
('awaiting_decision', 'HOLD', 'human', 'decision', 'a human was asked'),
('effect_already_live', 'HOLD', 'queue', 'effect', 'another live item has the same effect identity'),
('key_saturated', 'HOLD', 'queue', 'key', 'as many items of its limit key as its class allows are ready or leased'),
('retry_backoff', 'HOLD', 'queue', 'time', 'waits before its next attempt'),
('reconciliation_required', 'HOLD', 'retry owner', 'reconciliation', 'an effect must be looked up first'),
('payload_invalid', 'HOLD', 'operator', 'policy', 'the payload does not validate under a newer revision'),
('class_not_authorised', 'HOLD', 'operator', 'policy', 'the class no longer accepts its submitter');

commit;
