-- queue/queue.sql · the governed fleet, tenant and shard boundary: a projection of item 0's events, changed by rare acts only.
begin;

create sequence eve.queue_id_seq as bigint;

comment on sequence eve.queue_id_seq is 'Queue ids.';

create table eve.queue (
    queue_id bigint not null default nextval('eve.queue_id_seq'),
    name text not null,
    durability text not null,
    aging_interval interval not null,
    request_retention interval not null,
    default_pool text not null,
    epoch bigint not null,
    halted boolean not null,
    ttl_floor interval not null,
    ttl_ceiling interval not null,
    lanes integer[] not null,
    restricted boolean not null,
    limited boolean not null,
    created_at timestamptz not null,
    constraint queue_pkey primary key (queue_id),
    constraint queue_name_is_unique unique (name),
    constraint queue_name_is_short check (length(name) between 1 and 200 and name !~ '[[:cntrl:]]'),
    constraint queue_durability_is_known check (durability in ('required', 'platform', 'any')),
    constraint queue_epoch_fits_a_token check (epoch >= 0 and epoch < 2097152)
);

comment on table eve.queue is
'One row a queue: what its events under item 0 made of it. ttl_floor and ttl_ceiling span the windows of its classes, lanes are those in use, restricted says that a class is paused or bound to pools, limited that a class limits or limited its limit keys.';

create table eve.keeper (
    queue_id bigint not null,
    constraint keeper_pkey primary key (queue_id)
);

comment on table eve.keeper is
'One static row a queue: whoever locks it with SKIP LOCKED does the housekeeping of that second.';

create table eve.tick (
    queue_id bigint not null,
    at timestamptz not null,
    xid xid8 not null default pg_current_xact_id(),
    constraint tick_pkey primary key (queue_id, at, xid)
);

comment on table eve.tick is
'Insert-only clock readings, about one a second: read highest first, so that a clock stepped back is noticed.';

commit;
