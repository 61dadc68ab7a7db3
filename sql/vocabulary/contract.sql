-- vocabulary/contract.sql · the default policy, written here and nowhere else, and the eleven semantics with their home.
begin;

create table eve.contract (
    name text not null,
    revision integer not null,
    decision text not null,
    local_leases integer not null,
    ttl_floor interval not null,
    ttl_ceiling interval not null,
    ttl interval not null,
    max_age interval not null,
    attempts integer not null,
    aging_interval interval not null,
    slots_ceiling integer not null,
    constraint contract_pkey primary key (name),
    constraint contract_is_one_row check (name = 'eve.queue-semantics.v1')
);

comment on table eve.contract is
'The contract record: name, revision and the default policy that everything else reads. Source: contract, section 5.';

insert into eve.contract values (
    'eve.queue-semantics.v1', 1, 'queue-semantics-enforced',
    1, '60 s', '86400 s', '900 s', '14400 s', 3, '3600 s', 1024
);

create table eve.semantic (
    semantic text not null,
    layer text not null,
    home text not null,
    refusals text[] not null,
    promise text not null,
    constraint semantic_pkey primary key (semantic),
    constraint semantic_layer_is_known check (layer in ('decision', 'store', 'both'))
);

comment on table eve.semantic is
'The eleven semantics: which layer enforces each (decision = sql/acquire and sql/admit, store = sql/ledger, sql/fold and sql/lease), in which file, by which refusals. Source: contract, sections 5 to 10.';

insert into eve.semantic (semantic, layer, home, refusals, promise) values
('local-concurrency-one', 'decision', 'acquire/concurrency', '{concurrency_exhausted}',
    'one live lease in pool local, whatever a caller says'),
('cloud-concurrency-after-spend-approval', 'decision', 'acquire/spend', '{spend_not_approved,concurrency_exhausted}',
    'N leases only under a spend decision that a human accepted'),
('priority-fairness-starvation', 'decision', 'acquire/pick', '{}',
    'rank, aged by one class an interval, then the longest ready'),
('lease-ttl-and-renewal', 'both', 'acquire/lease_ttl', '{lease_ttl_out_of_range,lease_age_exceeded,not_lease_holder}',
    'a lease lasts as long as policy allows and no longer'),
('monotonic-fencing-token', 'store', 'fold/step', '{stale_fence}',
    'tokens of an item only grow, minted by the fold'),
('idempotency-key', 'store', 'item/request', '{idempotency_conflict}',
    'a keyed request takes effect once'),
('retry-budget', 'decision', 'acquire/retry_budget', '{retry_budget_exhausted}',
    'attempts are acquisitions, and they are counted'),
('poison-item-quarantine', 'both', 'acquire/quarantine', '{quarantined}',
    'an item that spent its budget is parked with a record'),
('dependency-readiness', 'decision', 'acquire/dependency_ready',
    '{dependency_not_ready,unknown_dependency,dependency_cycle}',
    'every declared dependency is verified, or waived by a human'),
('orphan-recovery', 'decision', 'lease/recover', '{}',
    'three kinds of lost leases, three events, each guarded by the lease observed'),
('terminal-state-ownership', 'store', 'queue/caller', '{terminal_state_not_owned}',
    'only who owns an end may write it');

commit;
