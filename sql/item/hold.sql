-- item/hold.sql · why a waiting item waits: a set, each reason with its owner, its trigger and a reference.
begin;

create table eve.hold (
    queue_id bigint not null,
    item bigint not null,
    reason text not null,
    ref text not null,
    owner text not null,
    trigger text not null,
    due_at timestamptz,
    open_edges integer,
    look_at timestamptz,
    looked boolean not null default false,
    class_id integer,
    rank smallint,
    place timestamptz,
    constraint hold_pkey primary key (queue_id, item, reason, ref)
);

create index hold_trigger on eve.hold (queue_id, trigger, ref) where ref <> '';
create index hold_due_at on eve.hold (queue_id, due_at) where due_at is not null;
create index hold_key on eve.hold (queue_id, class_id, ref, rank, place, item) where class_id is not null;
create index hold_look_at on eve.hold (queue_id, looked, look_at) where look_at is not null;

comment on table eve.hold is
'The hold set of each waiting item, indexed by what releases it. open_edges counts the unverified dependencies. look_at is when housekeeping looks twice at what others release, because it may have happened unseen while the hold was written; null once settled. class_id, rank and place are the order in which those that wait for a limit key are released.';

create table eve.deadline (
    queue_id bigint not null,
    at timestamptz not null,
    item bigint not null,
    constraint deadline_pkey primary key (queue_id, at, item)
);

comment on table eve.deadline is
'The instants at which an unfinished item expires: inserted at submit, removed when they come.';

commit;
