-- api/govern.sql · human and operator acts. Appends: rejected, unparked, reprioritised; under item 0 halted, resumed, paused, unpaused, epoch_started. Raises: terminal_state_not_owned.
begin;

create function public.eve_reject(queue text, item bigint, reason text, idempotency_key text default null)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    a eve.acting;
    answer eve.act_answer;
    appended eve.appended;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, item, 'human');
    perform eve._check_text('reason', reason, 1000, true);
    answer := eve._act_replay(c, idempotency_key, 'eve_reject', eve._fingerprint('eve_reject',
        eve._text(queue), int8send(item), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    if (a.state).phase in ('verified', 'rejected', 'expired', 'cancelled', 'coalesced', 'dead') then
        perform eve._wrong_phase(c, a, 'eve_reject');
    end if;
    perform eve._durable(c);
    perform eve._end_lease(c, a);
    appended := eve._append(c, item, 'rejected', eve._clock(c), reason => reason, revision => (a.state).revision);
    perform eve._close_edges(c, item, 'rejected', appended.at);
    return eve._act_keep(c, idempotency_key, eve._acted(item, appended));
end
$$;

comment on function public.eve_reject(text, bigint, text, text) is
'A human ends an item that is not ended or verified; a live lease is superseded. Refuses every other caller (terminal_state_not_owned) and ended items (55000).';

create function public.eve_unpark(
    queue text,
    item bigint,
    extra_attempts integer default 1,
    reason text default 'unparked',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    a eve.acting;
    answer eve.act_answer;
    policy eve.policy;
    at timestamptz;
    lacks jsonb;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, item, 'human');
    perform eve._check_text('reason', reason, 1000, true);
    if extra_attempts is null or extra_attempts not between 1 and 1000 then
        perform eve._raise('22023', 'extra_attempts is not between 1 and 1000', '{"argument": "extra_attempts"}',
            'Grant at least one attempt.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_unpark', eve._fingerprint('eve_unpark',
        eve._text(queue), int8send(item), int4send(extra_attempts), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    if (a.state).phase <> 'quarantined' then
        perform eve._wrong_phase(c, a, 'eve_unpark');
    end if;
    policy := eve._policy(c.queue_id, a.class_id, (a.state).revision);
    perform eve._durable(c);
    at := eve._clock(c);
    lacks := eve._ticket_holds(c.queue_id, item, at);
    -- Extra attempts count from what is spent: a budget lowered meanwhile does not eat them.
    return eve._act_keep(c, idempotency_key, eve._acted(item, eve._append(c, item, 'unparked', at,
        phase => case when lacks = '[]' then 'ready' else 'held' end, revision => (a.state).revision,
        attempts => extra_attempts + greatest(0, (a.state).attempts - eve._budget(policy, a.state)), reason => reason,
        data => jsonb_strip_nulls(jsonb_build_object('extra_attempts', extra_attempts,
            'holds', nullif(lacks, '[]'))))));
end
$$;

comment on function public.eve_unpark(text, bigint, integer, text, text) is
'A human returns a quarantined item to the queue with extra attempts; its history stays. Refuses every other caller (terminal_state_not_owned) and other phases (55000).';

create function public.eve_reprioritise(
    queue text,
    item bigint,
    priority_class integer,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    a eve.acting;
    answer eve.act_answer;
begin
    c := eve._enter(queue, '{operator,human}');
    if priority_class is null or priority_class not between 0 and 3 then
        perform eve._raise('22023', 'priority_class is not between 0 and 3', '{"argument": "priority_class"}',
            '0 is the most urgent.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_reprioritise', eve._fingerprint('eve_reprioritise',
        eve._text(queue), int8send(item), int4send(priority_class)));
    if answer.done is not null then
        return answer;
    end if;
    a := eve._act_on(c, item);
    if (a.state).phase not in ('ready', 'held') then
        perform eve._wrong_phase(c, a, 'eve_reprioritise');
    end if;
    if (a.state).rank = priority_class then
        return eve._act_keep(c, idempotency_key, eve._acted(item, null));
    end if;
    perform eve._durable(c);
    return eve._act_keep(c, idempotency_key, eve._acted(item, eve._append(c, item, 'reprioritised', eve._clock(c),
        revision => (a.state).revision, rank => priority_class::smallint)));
end
$$;

comment on function public.eve_reprioritise(text, bigint, integer, text) is
'Change the rank of a waiting or ready item; it keeps its ready_since. Answers done = false when it has that rank. Refuses other phases (55000).';

create function public.eve_halt(
    queue text,
    reason text default 'halted',
    as_of text default null,
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
    appended eve.appended;
    leases jsonb;
    since xid8;
    asked xid8;
    fresh boolean;
begin
    -- An as_of is assigned after the halt was seen committed: a transaction that had an id before cannot give one.
    fresh := pg_current_xact_id_if_assigned() is null and (eve._look(queue, '{operator,human}')).halted;
    c := eve._enter(queue, '{operator,human}');
    perform eve._check_text('reason', reason, 1000, true);
    -- Transaction ids have 64 bits; 19 digits are never too large for them.
    if as_of is not null and as_of !~ '^[0-9]{1,19}$' then
        perform eve._raise('22023', 'as_of is not a transaction id', '{"argument": "as_of"}',
            'Pass back the as_of of the answer.');
    end if;
    answer := eve._act_replay(c, idempotency_key, 'eve_halt', eve._fingerprint('eve_halt',
        eve._text(queue), eve._text(reason), eve._text(as_of)));
    if answer.done is not null then
        return answer;
    end if;
    if not c.halted then
        appended := eve._queue_event(c, 'halted', '{}', reason);
    else
        -- An as_of from before this halt proves nothing of it.
        -- (A halt restored from another cluster is older than all here.)
        select l.tx into since from eve.ledger as l
        where l.queue_id = c.queue_id and l.item = 0 and l.kind = 'halted'
        order by l.version desc limit 1;
        asked := case when as_of::xid8 > since or since >= pg_snapshot_xmax(pg_current_snapshot())
            then as_of::xid8 end;
    end if;
    select coalesce(jsonb_agg(jsonb_build_object('item', h.item, 'principal', h.principal, 'worker', h.worker,
        'expires_at', h.expires_at) order by h.item), '[]')
    into leases from eve.held_slot as h where h.queue_id = c.queue_id;
    answer := eve._acted(0, appended, jsonb_build_object(
        'settled', coalesce(asked < pg_snapshot_xmin(pg_current_snapshot()), false),
        'as_of', coalesce(asked, case when fresh then pg_current_xact_id() end)::text,
        'because', case when c.halted and not fresh and asked is null
            then 'this transaction began before: ask again in one of its own' end,
        'leases', leases));
    answer.phase := 'halted';
    return eve._act_keep(c, idempotency_key, answer);
end
$$;

comment on function public.eve_halt(text, text, text, text) is
'Stop all acquisition of the queue; live leases, which the answer names, may finish. Asked again after its commit it answers as_of, and asked with as_of settled = true once no acquisition begun before the halt can still commit. An as_of of an earlier halt is answered by a new one.';

create function public.eve_resume(queue text, reason text default 'resumed', idempotency_key text default null)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
begin
    c := eve._enter(queue, eve._everyone());
    perform eve._must_own(c, null, 'human');
    perform eve._check_text('reason', reason, 1000, true);
    answer := eve._act_replay(c, idempotency_key, 'eve_resume', eve._fingerprint('eve_resume',
        eve._text(queue), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    if not c.halted then
        return eve._act_keep(c, idempotency_key, eve._acted(0, null));
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(0, eve._queue_event(c, 'resumed', '{}', reason)));
end
$$;

comment on function public.eve_resume(text, text, text) is
'A human allows acquisition again; nothing else resumes by itself. Refuses every other caller (terminal_state_not_owned).';

create function eve._pause(queue text, kind text, class text, pool text, reason text, idempotency_key text)
returns eve.act_answer
language plpgsql
as $$
declare
    c eve.caller := eve._enter(queue, '{operator}');
    answer eve.act_answer;
    paused boolean;
begin
    perform eve._check_text('reason', reason, 1000, true);
    if pg_catalog.num_nonnulls(class, pool) <> 1 then
        perform eve._raise('22023', 'not exactly one of class and pool is given', null, 'Name one class or one pool.');
    end if;
    answer := eve._act_replay(c, idempotency_key, kind, eve._fingerprint(kind,
        eve._text(queue), eve._text(class), eve._text(pool), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    if class is not null then
        select k.paused into paused from eve.work_class as k
        where k.queue_id = c.queue_id and k.class_id = eve._class_id(c, class);
    else
        select p.paused into paused from eve.pool as p
        where p.queue_id = c.queue_id and p.pool = _pause.pool;
        if not found then
            perform eve._raise('P0002', pg_catalog.format('unknown pool "%s"', pg_catalog.left(pool, 200)), null,
                'Define it with eve_define_pool.');
        end if;
    end if;
    if paused = (kind = 'paused') then
        return eve._act_keep(c, idempotency_key, eve._acted(0, null));
    end if;
    return eve._act_keep(c, idempotency_key, eve._acted(0, eve._queue_event(c, kind,
        pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('class', class, 'pool', pool)), reason)));
end
$$;

comment on function eve._pause(text, text, text, text, text, text) is
'Pause or unpause a class or a pool.';

create function public.eve_pause(
    queue text, class text default null, pool text default null, reason text default 'paused',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    return eve._pause(queue, 'paused', class, pool, reason, idempotency_key);
end
$$;

comment on function public.eve_pause(text, text, text, text, text) is
'Stop acquisition of one class or one pool; leases go on. Answers done = false when it is paused already.';

create function public.eve_unpause(
    queue text, class text default null, pool text default null, reason text default 'unpaused',
    idempotency_key text default null
)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
begin
    return eve._pause(queue, 'unpaused', class, pool, reason, idempotency_key);
end
$$;

comment on function public.eve_unpause(text, text, text, text, text) is
'Allow acquisition of a paused class or pool again. Answers done = false when it is not paused.';

create function public.eve_new_epoch(queue text, reason text default 'new epoch', idempotency_key text default null)
returns eve.act_answer
language plpgsql
security definer
set search_path to pg_catalog, pg_temp
as $$
declare
    c eve.caller;
    answer eve.act_answer;
begin
    c := eve._enter(queue, '{operator}');
    perform eve._check_text('reason', reason, 1000, true);
    answer := eve._act_replay(c, idempotency_key, 'eve_new_epoch', eve._fingerprint('eve_new_epoch',
        eve._text(queue), eve._text(reason)));
    if answer.done is not null then
        return answer;
    end if;
    perform from eve.work_item as w where w.queue_id = c.queue_id and w.item = 0 for no key update;
    select q.epoch + 1 into c.epoch from eve.queue as q where q.queue_id = c.queue_id;
    -- A clock that had jumped ahead counts again; marks made under it would hide what becomes ready now.
    delete from eve.tick as t where t.queue_id = c.queue_id;
    delete from eve.probe as p where p.queue_id = c.queue_id;
    delete from eve.mark as m where m.queue_id = c.queue_id;
    c.tick := null;
    return eve._act_keep(c, idempotency_key, eve._acted(0, eve._queue_event(c, 'epoch_started',
        jsonb_build_object('epoch', c.epoch), reason)));
end
$$;

comment on function public.eve_new_epoch(text, text, text) is
'Start a new epoch after a point-in-time restore or an asynchronous promotion: every later token is above every one that may have been handed out. Earlier clock readings are forgotten, so that a clock which had jumped ahead counts again.';

commit;
