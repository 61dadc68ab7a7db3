-- item/intent.sql · envelope and payload as they were submitted: insert-only, the payload dropped by a purge alone.
begin;

create sequence eve.item_seq as bigint;

comment on sequence eve.item_seq is 'Item numbers. They name, they do not order.';

create table eve.intent (
    queue_id bigint not null,
    item bigint not null,
    work_id text not null,
    class_id integer not null,
    lane smallint not null,
    payload jsonb,
    payload_size integer not null,
    payload_digest bytea not null,
    operation_identity text not null,
    effect_identity text not null,
    cancellation_identity text not null,
    requested_at timestamptz not null,
    not_before timestamptz,
    deadline timestamptz,
    minimum_completion_margin interval,
    value_until timestamptz,
    priority_class smallint not null,
    dependency_revisions jsonb,
    replay_class text not null,
    completion_test text not null,
    expected_effects text[],
    coalescing_key text,
    limit_key text,
    group_label text,
    parent bigint,
    root bigint,
    depth smallint not null,
    effect_unique boolean not null default false,
    coalesces boolean not null default false,
    limited boolean not null default false,
    edges integer not null,
    trace text,
    derived text[] not null,
    principal text not null,
    submitted_at timestamptz not null,
    constraint intent_pkey primary key (queue_id, item),
    constraint intent_work_id_is_unique unique (queue_id, work_id),
    constraint intent_item_is_positive check (item > 0),
    constraint intent_priority_class_is_known check (priority_class between 0 and 3),
    constraint intent_work_id_is_short check (octet_length(work_id) between 1 and 512)
);

create index intent_parent on eve.intent (queue_id, parent) where parent is not null;
create index intent_cancellation on eve.intent (queue_id, cancellation_identity)
where cancellation_identity <> work_id;

comment on table eve.intent is
'What was asked: the whole envelope, stored before any decision, and the payload. derived names the fields the engine filled in, effect_unique is what the class said when it was submitted, coalesces that it claimed its coalescing key, limited that its class limited its limit key.';

create function eve._guard_intent()
returns trigger
language plpgsql
as $$
begin
    if tg_op = 'UPDATE' and new.payload is null then
        new.payload := old.payload;
        if new is not distinct from old then
            new.payload := null;
            return new;
        end if;
    end if;
    perform eve._raise('55000',
        pg_catalog.format('table "%s" is insert-only', tg_table_name),
        pg_catalog.jsonb_build_object('operation', tg_op),
        'Submit a new item instead.');
    return null;
end
$$;

comment on function eve._guard_intent() is
'Refuse every change of an intent but dropping its payload (55000).';

create trigger intent_guard_row before update or delete on eve.intent
for each row execute function eve._guard_intent();

create trigger intent_guard_truncate before truncate on eve.intent
for each statement execute function eve._guard();

alter table eve.intent enable always trigger intent_guard_row;
alter table eve.intent enable always trigger intent_guard_truncate;

comment on trigger intent_guard_row on eve.intent is 'Only the payload may go, by a purge.';
comment on trigger intent_guard_truncate on eve.intent is 'Intents are never truncated away.';

create table eve.result (
    queue_id bigint not null,
    item bigint not null,
    version integer not null,
    result jsonb not null,
    constraint result_pkey primary key (queue_id, item, version)
);

comment on table eve.result is
'The results that holders reported, by the version of the event that carries their digest; purged with the payload.';

create table eve.effect (
    queue_id bigint not null,
    item bigint not null,
    effect_identity text not null,
    version integer not null,
    kind text not null,
    at timestamptz not null,
    evidence jsonb,
    constraint effect_pkey primary key (queue_id, item, version, effect_identity),
    constraint effect_kind_is_known check (kind in ('started', 'observed', 'absent', 'compensated'))
);

create index effect_identity on eve.effect (queue_id, effect_identity);

comment on table eve.effect is
'Insert-only index of the effect events of an item: started, observed, found absent, compensated.';

create table eve.submission (
    queue_id bigint not null,
    submission bigint not null,
    at timestamptz not null,
    actor text not null,
    principal text not null,
    class text not null,
    revision integer,
    work_id text,
    decision text not null,
    reason text not null,
    payload_size integer not null,
    payload_digest bytea not null,
    evidence jsonb not null,
    constraint submission_pkey primary key (queue_id, submission),
    constraint submission_was_refused check (decision in ('REJECT', 'EXPIRE', 'COALESCE'))
);

create sequence eve.submission_seq as bigint;

comment on table eve.submission is
'Append-only records of submissions that were refused storage: identity, size, digest, decision, reason, evidence.';
comment on sequence eve.submission_seq is 'Submission record numbers.';

create trigger submission_guard_row before update or delete on eve.submission
for each row execute function eve._guard();

create trigger submission_guard_truncate before truncate on eve.submission
for each statement execute function eve._guard();

alter table eve.submission enable always trigger submission_guard_row;
alter table eve.submission enable always trigger submission_guard_truncate;

comment on trigger submission_guard_row on eve.submission is 'Refused submissions stay on record.';
comment on trigger submission_guard_truncate on eve.submission is 'Refused submissions stay on record.';

create table eve.cancellation (
    queue_id bigint not null,
    cancellation_identity text not null,
    submitter text not null,
    at timestamptz not null,
    principal text not null,
    reason text,
    constraint cancellation_pkey primary key (queue_id, cancellation_identity, submitter)
);

comment on table eve.cancellation is
'Tombstones: a cancelled identity stays cancelled for what is submitted later, by one submitter where a producer cancelled its own, by anybody (an empty submitter) where an operator or human did.';

create function eve._tombstone(queue_id bigint, cancellation_identity text, submitter text)
returns boolean
language plpgsql
stable
as $$
begin
    return exists (
        select from eve.cancellation as t
        where t.queue_id = _tombstone.queue_id
            and t.cancellation_identity = _tombstone.cancellation_identity
            and t.submitter in ('', _tombstone.submitter));
end
$$;

comment on function eve._tombstone(bigint, text, text) is
'Whether a cancellation identity is cancelled for a submitter.';

commit;
