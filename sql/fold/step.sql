-- fold/step.sql · state × event → state: the only step there is. Raises: 55000 for an event its phase does not allow.
begin;

create function eve.step(state eve.state, event eve.event)
returns eve.state
language plpgsql
immutable
parallel safe
as $$
declare
    s eve.state := state;
    was text := state.phase;
    legal boolean;
begin
    s.version := coalesce(state.version, 0) + 1;
    s.at := event.at;
    case event.kind
        when 'acquired' then
            legal := was = 'ready' and event.due_at > event.at
                and (event.principal, event.worker, event.pool, event.slot) is not null;
            s.phase := 'leased';
            s.attempts := s.attempts + 1;
            s.token := greatest(s.token, event.epoch * 4294967296) + 1;
            s.principal := event.principal;
            s.worker := event.worker;
            s.pool := event.pool;
            s.slot := event.slot;
            s.acquired_at := event.at;
            s.expires_at := event.due_at;
            s.reason := null;
        when 'completed' then
            legal := (was = 'leased' and event.token = s.token or was in ('reported', 'uncertain'))
                and event.phase in ('completed', 'verified');
            s.phase := event.phase;
        when 'admitted' then
            legal := state.version is null and event.rank between 0 and 3;
            s.phase := 'ready';
            s.attempts := 0;
            s.allowance := 0;
            s.credits := 0;
            s.token := 0;
            s.rank := event.rank;
            s.revision := event.revision;
            s.effect_started := false;
            s.cancel_requested := false;
            -- What it replaces gives it its place.
            s.ready_since := coalesce(event.due_at, event.at);
            s.late := s.ready_since < event.at;
        when 'renewed' then
            legal := was = 'leased' and event.token = s.token and event.due_at >= s.expires_at;
            s.expires_at := event.due_at;
        when 'held' then
            legal := state.version is null and event.rank between 0 and 3 or was in ('ready', 'held');
            s.phase := 'held';
            s.reason := event.reason;
            if state.version is null then
                s.attempts := 0;
                s.allowance := 0;
                s.credits := 0;
                s.token := 0;
                s.rank := event.rank;
                s.revision := event.revision;
                s.effect_started := false;
                s.cancel_requested := false;
            end if;
        when 'released' then
            legal := was = 'held';
            s.phase := 'ready';
            s.ready_since := coalesce(event.due_at, event.at);
            s.late := s.ready_since < event.at;
            s.reason := event.reason;
        when 'failed' then
            legal := was = 'leased' and event.token = s.token
                and event.phase in ('held', 'quarantined', 'uncertain');
            s.phase := event.phase;
            s.reason := event.reason;
        when 'returned' then
            legal := was = 'leased' and event.token = s.token
                and event.phase in ('ready', 'held', 'uncertain')
                and coalesce(event.attempts, 0) between 0 and 1;
            s.phase := event.phase;
            s.reason := event.reason;
            s.credits := s.credits + coalesce(event.attempts, 0);
            s.late := true;
        when 'lease_expired', 'lease_missing', 'lease_superseded' then
            -- Guarded by the lease observed; a superseded one is another than the present.
            legal := was = 'leased' and case
                when event.kind = 'lease_superseded' then
                    event.phase in ('ready', 'held', 'quarantined', 'uncertain', 'leased')
                else event.token = s.token
                    and event.phase in ('ready', 'held', 'quarantined', 'uncertain')
            end;
            s.phase := event.phase;
            s.reason := event.reason;
            s.late := true;
        when 'effect_started' then
            legal := was = 'leased' and event.token = s.token;
            s.effect_started := true;
        when 'effect_observed' then
            legal := was = 'leased' and event.token = s.token or was in ('uncertain', 'reported');
        when 'reported' then
            legal := was = 'leased' and event.token = s.token;
            s.phase := 'reported';
        when 'verified' then
            legal := was = 'completed';
            s.phase := 'verified';
        when 'reconciled' then
            legal := was in ('uncertain', 'reported') and event.phase in
                ('completed', 'verified', 'ready', 'held', 'quarantined', 'uncertain');
            s.phase := event.phase;
            s.reason := event.reason;
            s.late := true;
            if event.phase in ('ready', 'held', 'quarantined') then
                s.effect_started := false;
            end if;
        when 'parked' then
            legal := was in ('ready', 'held');
            s.phase := 'quarantined';
            s.reason := event.reason;
        when 'unparked' then
            legal := was = 'quarantined' and event.phase in ('ready', 'held', 'uncertain')
                and event.attempts >= 0;
            s.phase := event.phase;
            s.allowance := s.allowance + event.attempts;
            s.ready_since := event.at;
            s.late := false;
            s.reason := event.reason;
        when 'cancel_requested' then
            legal := was in ('leased', 'uncertain', 'reported');
            s.cancel_requested := true;
        when 'cancelled' then
            legal := was in ('held', 'ready', 'leased');
            s.phase := 'cancelled';
            s.reason := event.reason;
            if was = 'leased' then
                s.token := greatest(s.token, event.epoch * 4294967296) + 1;
            end if;
        when 'expired' then
            legal := was in ('held', 'ready', 'leased') and (
                    event.phase = 'expired' or event.phase = 'uncertain' and s.effect_started)
                or was = 'reported' and event.phase = 'uncertain';
            s.phase := event.phase;
            s.reason := event.reason;
            if was in ('leased', 'reported') then
                s.token := greatest(s.token, event.epoch * 4294967296) + 1;
            end if;
        when 'rejected' then
            legal := was in ('held', 'ready', 'leased', 'uncertain', 'reported', 'completed', 'quarantined');
            s.phase := 'rejected';
            s.reason := event.reason;
            if was = 'leased' then
                s.token := greatest(s.token, event.epoch * 4294967296) + 1;
            end if;
        when 'reprioritised' then
            legal := was in ('held', 'ready') and event.rank between 0 and 3;
            -- Its ready_since is older than the marks of the new rank may be.
            s.late := s.late or was = 'ready' and event.rank <> s.rank;
            s.rank := event.rank;
        when 'coalesced' then
            legal := state.version is null and event.rank between 0 and 3 or was in ('ready', 'held');
            s.phase := 'coalesced';
            s.reason := event.reason;
            if state.version is null then
                s.attempts := 0;
                s.allowance := 0;
                s.credits := 0;
                s.token := 0;
                s.rank := event.rank;
                s.revision := event.revision;
                s.effect_started := false;
                s.cancel_requested := false;
            end if;
        when 'imported' then
            legal := state.version is null and event.rank between 0 and 3
                and event.phase in ('verified', 'cancelled');
            s.phase := event.phase;
            s.attempts := 0;
            s.allowance := 0;
            s.credits := 0;
            s.token := 0;
            s.rank := event.rank;
            s.revision := event.revision;
            s.effect_started := false;
            s.cancel_requested := false;
        when 'absorbed' then
            legal := was in ('held', 'ready');
        when 'compensated' then
            legal := was in ('completed', 'verified');
        when 'dead' then
            legal := was = 'quarantined';
            s.phase := 'dead';
            s.reason := event.reason;
        when 'purged' then
            legal := was in ('verified', 'rejected', 'expired', 'cancelled', 'coalesced', 'dead');
        when 'queue_created' then
            legal := state.version is null;
        when 'class_defined', 'pool_defined', 'access_granted', 'access_revoked',
            'decision_proposed', 'decision_accepted', 'decision_declined', 'decision_consumed',
            'halted', 'resumed', 'paused', 'unpaused', 'epoch_started', 'clock_stepped',
            'schedule_defined', 'schedule_dropped', 'sealed', 'archived' then
            legal := state.version is not null and was is null;
        else
            legal := false;
    end case;
    if (legal and coalesce(s.token, 0) < 9007199254740992) is not true then
        perform eve._raise(
            '55000',
            pg_catalog.format('event "%s" is not allowed in phase "%s"', event.kind, coalesce(was, 'none')),
            pg_catalog.jsonb_build_object('kind', event.kind, 'phase', was, 'to', event.phase,
                'token', event.token, 'current', state.token),
            'Read the item again: its state has moved on.');
    end if;
    if was = 'leased' and s.phase <> 'leased' then
        s.principal := null;
        s.worker := null;
        s.pool := null;
        s.slot := null;
        s.acquired_at := null;
        s.expires_at := null;
    end if;
    return s;
end
$$;

comment on function eve.step(eve.state, eve.event) is
'The next state: a pure function of state and event, called live by the ledger''s trigger and by the replay aggregate. Refuses an event that the phase does not allow (55000).';

commit;
