"""Any sequence of calls, by any roles, under any clock, leaves a queue that keeps its laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, ClassVar

import psycopg
import pytest

from model.deck import (
    CLASSES,
    FENCED_OUT,
    FENCED_OUT_CODES,
    OTHERWISE,
    QUICK,
    STEPS,
    Deck,
    Draw,
    Lease,
    documented,
)
from model.ground import SCALE, SEED, prepare
from model.histories import START
from model.twin import words
from support.database import Database, Row, call

STATES = """
select w.item, (w.queue_state).phase, (w.queue_state).token, (w.queue_state).attempts,
    (w.queue_state).version
from eve.work_item as w where w.queue_id = %s and w.item > 0
"""
# What a hold says while it is no longer so, and edges that are open though nothing is awaited.
# (Cycles are walked anew at the door; a hold for one that was broken elsewhere stays until then.)
UNTIMELY = """
with q (id) as (values (%s::bigint)), edge as (
    select d.item, d.on_item is not null as known, (w.queue_state).phase,
        (p.queue_state).phase = 'verified'
        or d.needs = 'ended' and (p.queue_state).phase = any (%s)
        or d.on_item is null and i.item is not null as answered
    from q join eve.dependency as d on d.queue_id = q.id and d.open
    join eve.work_item as w on w.queue_id = d.queue_id and w.item = d.item
    left join eve.work_item as p on p.queue_id = d.queue_id and p.item = d.on_item
    left join eve.intent as i on i.queue_id = d.queue_id and i.work_id = d.on_work_id
)
select e.item, 'an answered edge is open' as fault from edge as e
where e.phase = 'held' and e.answered
union all
select e.item, 'open edges, but it is ' || e.phase from edge as e
where e.phase in ('ready', 'leased')
union all
select h.item, h.reason || ' no more' from q join eve.hold as h on h.queue_id = q.id
join eve.work_item as w on w.queue_id = h.queue_id and w.item = h.item
join eve.intent as i on i.queue_id = h.queue_id and i.item = h.item
join eve.work_class as k on k.queue_id = h.queue_id and k.class_id = w.class_id
join eve.class_revision as r
    on r.queue_id = k.queue_id and r.class_id = k.class_id and r.revision = k.revision
where case h.reason
    when 'unknown_dependency' then not exists (
        select from edge as e where e.item = h.item and not e.known)
    when 'dependency_not_ready' then not exists (
        select from edge as e where e.item = h.item and e.known)
        or h.open_edges <> (select count(*) from edge as e where e.item = h.item)
    when 'awaiting_decision' then not exists (
        select from eve.decision as d
        where d.queue_id = h.queue_id and d.decision::text = h.ref and d.phase = 'open')
    when 'replay_class_unknown' then (r.policy).replay_class <> 'unknown'
        and k.revision > (w.queue_state).revision
    when 'payload_invalid' then i.payload_size <= (r.policy).payload_limit
end
"""
EVERYTHING = """
create function public.everything(q bigint) returns text language sql stable as $$
    select md5(concat_ws('/', public.derived(q)::text,
        (select string_agg(l.hash::text, '' order by l.item, l.version)
            from eve.ledger as l where l.queue_id = q),
        (select string_agg(x::text, '' order by x.item) from eve.intent as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.decision)
            from eve.decision as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.item, x.on_work_id)
            from eve.dependency as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.principal, x.key)
            from eve.request as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.item, x.version)
            from eve.effect as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.submission)
            from eve.submission as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.at, x.item)
            from eve.deadline as x where x.queue_id = q),
        (select string_agg(x::text, '' order by x.at) from eve.tick as x where x.queue_id = q)))
$$;
"""
TRIGGERS = words("time decision dependency policy observation health validator effect key")
ENDED = words("verified rejected expired cancelled coalesced dead")
FINISHING = "('completed', 'reported', 'failed', 'returned', 'renewed', 'effect_started')"
NUMBER = count(1)
SEQUENCES = 12  # of each batch
LENGTHS = (15, 60, 120, 200)
FAILURES = (AssertionError, psycopg.Error)


def begin(db: Database, log: list[str]) -> Deck:
    """A queue with classes of all kinds and a pool."""
    queue = db.make_queue(f"q{next(NUMBER)}", replay_class=None)
    queue_id = db.value("select queue_id from eve.queue where name = %s", [queue])
    deck = Deck(db, queue, queue_id, log=log)
    for name, said in CLASSES.items():
        deck.call("t_operator", "eve_define_class", **{"class": name}, **said)
    deck.call("t_human", "eve_approve_slots", pool="cloud", slots=3)
    return deck


class Play:
    """Two queues, the calls made in them, and the laws that are looked at after each call."""

    def __init__(self, db: Database, seed: str) -> None:
        self.db = db
        self.seed = seed
        self.log: list[str] = []
        db.clock.set(START)
        one, two = self.decks = (begin(db, self.log), begin(db, self.log))
        one.other, two.other = two, one
        self.deck = one
        for deck in self.decks:
            deck.events = self.events(deck)

    def play(self, steps: Sequence[int]) -> None:
        """Each step has a seed of its own, so that any of them can be left out."""
        for place in steps:
            d = Draw(Random(f"{self.seed} {place}"))
            self.deck = self.decks[d.chance(20)]
            self.log.append(f"-- step {place}, {self.deck.queue}")
            d.rnd.choices(tuple(self.MOVES), tuple(self.MOVES.values()))[0](self, d)
            self.look()
        for deck in self.decks:
            self.deck = deck
            End(self.deck).come()
            self.look()
            self.history()

    # Laws

    def look(self) -> None:
        """The audit is clean, holds say what is so, no token and no attempt count went back."""
        other = self.deck.other
        (audit,) = self.db.calls("t_auditor", "eve_audit", queue=self.deck.queue)
        assert audit.clean, audit.faults
        untimely = self.db.rows(UNTIMELY, [self.deck.queue_id, sorted(ENDED - {"verified"})])
        assert not untimely, untimely
        for now in self.db.rows(STATES, [self.deck.queue_id]):
            was = self.deck.states.get(now.item)
            if was is not None:
                assert now.version >= was.version
                assert now.token >= was.token
                assert now.attempts >= was.attempts
                if now.attempts > was.attempts:
                    assert now.token > was.token
                if was.phase == "uncertain":
                    assert now.phase != "leased" or now.version > was.version + 1
            self.deck.states[now.item] = now
        assert other is not None
        assert self.events(other) == other.events, "a call changed another queue"
        self.deck.events = self.events(self.deck)

    def events(self, deck: Deck) -> int:
        found: int = self.db.value(
            "select count(*) from eve.ledger where queue_id = %s", [deck.queue_id]
        )
        return found

    def lost(self) -> list[Lease]:
        """Leases ever granted that are over: ended, superseded or recovered."""
        return [
            lease for lease in self.deck.leases
            if (s := self.deck.states[lease.item]).token != lease.token or s.phase != "leased"
        ]  # fmt: skip

    # Moves

    def a_call(self, d: Draw) -> None:
        self.deck.play(d)

    def time_passes(self, d: Draw) -> None:
        now = self.db.clock.advance(d.pick(STEPS))
        self.log.append(f"the clock: {now}")

    def the_clock_steps_back(self, d: Draw) -> None:
        now = self.db.clock.advance(-d.pick((0.5, 2.0, 45.0, 4000.0)))
        self.log.append(f"the clock, back: {now}")

    def a_lost_holder_changes_nothing(self, d: Draw) -> None:
        """Refused, or told the first answer again; the item's record stays as it is."""
        lost = self.lost()
        if not lost:
            return
        lease = d.pick(lost)
        role = lease.role if d.chance(90) else d.pick(("t_worker", "t_worker2"))
        verb = d.pick((
            "eve_complete", "eve_fail", "eve_return", "eve_renew", "eve_fence", "eve_start_effect",
            "eve_observe_effect", "eve_complete_batch", "eve_turn", "eve_submit",
        ))  # fmt: skip
        first = self.deck.finished.get((lease.item, lease.token))
        arguments: dict[str, Any] = {"item": lease.item, "token": lease.token}
        if first and first[0] == verb and d.chance(60):
            arguments = {k: v for k, v in first[1].items() if k != "idempotency_key"} or arguments
        if verb in ("eve_complete_batch", "eve_turn"):
            arguments = {"items": [lease.item], "tokens": [lease.token]}
        if verb == "eve_turn":
            arguments["worker"] = "w"
        if verb == "eve_submit":
            arguments = {"under": f"({lease.item},{lease.token})"}
        before = self.record(lease)
        answer = self.deck.attempt(role, verb, **arguments)
        rows = answer.rows
        if answer.refused:
            assert answer.refused in FENCED_OUT, (verb, answer.refused)
        if verb == "eve_submit":
            assert all(r.decision == "REJECT" for r in rows), rows
        elif verb == "eve_turn":
            self.deck.learn(role, verb, arguments, [r for r in rows if r.part == "acquire"])
            rows = [r for r in rows if r.part == "finish"]
        for row in rows if verb != "eve_submit" else []:
            if verb in ("eve_complete_batch", "eve_turn") and not row.accepted:
                assert row.refusal in FENCED_OUT_CODES, row
            else:
                self.said_before(row, first)
        after = self.record(lease)
        if verb != "eve_turn":  # which does housekeeping and may lease it anew
            assert after.version == before.version
            assert after.phase == before.phase
        assert after.written == before.written

    def said_before(self, row: Row, first: tuple[str, dict[str, Any], Row] | None) -> None:
        assert row.replayed, row
        assert first is not None, row
        was = first[2]
        for name in ("item", "accepted", "phase", "version", "missing", "next_at"):
            assert getattr(row, name) == getattr(was, name), (name, was, row)

    def record(self, lease: Lease) -> Row:
        return self.db.row(
            "select (w.queue_state).version, (w.queue_state).phase, (select count(*)"
            " from eve.ledger l where l.queue_id = w.queue_id and l.item = w.item"
            f" and l.token = %s and l.kind in {FINISHING}) as written"
            " from eve.work_item w where w.queue_id = %s and w.item = %s",
            [lease.token, self.deck.queue_id, lease.item],
        )

    def a_keyed_call_is_made_again(self, d: Draw) -> None:
        """The first answer, no event, no change; with another argument idempotency_conflict."""
        # Keys are forgotten after thirty days.
        known = [k for k in self.deck.kept if self.deck.now() - k.at < timedelta(days=28)]
        if not known:
            return
        kept = d.pick(known)
        before = self.everything()
        name, value = OTHERWISE.get(kept.verb, ("", None))
        if name and kept.arguments.get(name) != value and d.chance(30):
            other = kept.arguments | {name: value}
            assert self.deck.attempt(kept.role, kept.verb, **other).refused == "VE401"
        else:
            rows = self.deck.call(kept.role, kept.verb, **kept.arguments)
            assert len(rows) == len(kept.rows)
            for again, first in zip(rows, kept.rows, strict=True):
                if hasattr(again, "replayed"):
                    assert again.replayed
                    assert again._replace(replayed=first.replayed) == first
                else:
                    assert again == first
        assert self.everything() == before

    def everything(self) -> str:
        found: str = self.db.value("select public.everything(%s)", [self.deck.queue_id])
        return found

    def a_transaction_is_rolled_back(self, d: Draw) -> None:
        """Whatever it called: nothing is left of it."""
        before = self.everything()
        verbs = [self.deck.verb(d) for _ in range(d.number(1, 3))]
        drawn = [self.deck.draw(d, verb) for verb in verbs]
        role = drawn[0][0]
        kept = self.db.kept(role)
        with kept.transaction(force_rollback=True):
            for verb, (_, arguments) in zip(verbs, drawn, strict=True):
                self.log.append(f"{role} {verb} {arguments} (rolled back)")
                try:
                    with kept.transaction():
                        call(kept, verb, queue=self.deck.queue, **arguments)
                except psycopg.Error as error:
                    documented(error, verb, arguments)
        assert self.everything() == before

    def it_is_rebuilt(self, _: Draw) -> None:
        """Folded anew it has the same values, and goes on."""
        query = "select public.derived(%s)"
        before = self.db.value(query, [self.deck.queue_id])
        (audit,) = self.db.calls("t_operator", "eve_rebuild", queue=self.deck.queue)
        assert audit.clean, audit.faults
        assert self.db.value(query, [self.deck.queue_id]) == before

    def it_is_explained(self, _: Draw) -> None:
        """Each item says why it is where it is and what would change that, by words alone."""
        before = self.everything()
        ask = self.deck.call
        for item in self.deck.items:
            rows = ask("t_auditor", "eve_explain", item=item)
            assert rows
            for row in rows:
                assert row.code, row
                assert row.because, row
                assert row.remedy, row
                assert row.owner or row.phase in ENDED, row
            (found,) = ask("t_worker", "eve_item", item=item)
            state = self.deck.states[item]
            assert (found.phase, found.version, found.token) == (
                state.phase, state.version, state.token)  # fmt: skip
            assert found.phase != "held" or found.holds
            history = ask("t_verifier", "eve_history", item=item)
            assert [e.version for e in history] == list(range(1, state.version + 1))
        stats = ask("t_human", "eve_stats")
        assert sum(row.items for row in stats) == len(self.deck.items)
        assert self.everything() == before

    MOVES: ClassVar[dict[Callable[[Play, Draw], None], float]] = {
        a_call: 70,
        time_passes: 9,
        the_clock_steps_back: 2,
        a_lost_holder_changes_nothing: 6,
        a_keyed_call_is_made_again: 5,
        a_transaction_is_rolled_back: 3,
        it_is_rebuilt: 1.5,
        it_is_explained: 1.5,
    }

    def history(self) -> None:
        """Tokens grow with each lease; what was uncertain is looked up before it is leased."""
        last: dict[int, Row] = {}
        token: dict[int, int] = {}
        for event in self.db.rows(
            "select item, kind, phase, token from eve.ledger"
            " where queue_id = %s and item > 0 order by item, version",
            [self.deck.queue_id],
        ):
            was = last.get(event.item)
            if event.kind == "acquired":
                assert event.token > token.get(event.item, 0)
                token[event.item] = event.token
            if was and was.phase == "uncertain":
                assert event.phase == "uncertain" or event.kind in (
                    "reconciled", "completed", "rejected"), event  # fmt: skip
            last[event.item] = event


class End:
    """Brings every item to an end by what it waits for: no item is rejected or cancelled for it."""

    def __init__(self, deck: Deck) -> None:
        self.deck = deck
        self.db = deck.db

    def come(self) -> None:
        for turn in range(60):
            open_items = self.open()
            self.deck.log.append(f"end, turn {turn}: {[(i.item, i.phase) for i in open_items]}")
            if not open_items:
                return
            self.open_doors(turn)
            for item in open_items:
                act: Callable[[Row], None] | None = getattr(self, f"_{item.phase}", None)
                if act:
                    act(item)
            self.work()
            self.pass_time()
            self.deck.call("t_operator", "eve_sweep")
        raise AssertionError(f"without an end: {self.explained()}")

    def pass_time(self) -> None:
        """Past the longest lease, and to the first instant that somebody waits for."""
        now = self.db.clock.advance(1000)
        due = self.db.value(
            "select min(due_at) from eve.hold where queue_id = %s and trigger = 'time'",
            [self.deck.queue_id],
        )
        if due is not None and due > now:
            self.db.clock.set(due)

    def open(self) -> list[Row]:
        return self.db.rows(
            "select w.item, (w.queue_state).phase from eve.work_item w where w.queue_id = %s"
            " and w.item > 0 and (w.queue_state).phase <> all (%s) order by w.item",
            [self.deck.queue_id, sorted(ENDED)],
        )

    def explained(self) -> list[Row]:
        return [
            row for item in self.open()
            for row in self.deck.call("t_auditor", "eve_explain", item=item.item)
        ]  # fmt: skip

    def open_doors(self, turn: int) -> None:
        """What people do to let work through: resume, unpause, define, approve, decide."""
        self.deck.call("t_human", "eve_resume")
        for pool in ("local", "cloud"):
            self.deck.call("t_operator", "eve_unpause", pool=pool)
        self.deck.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
        self.deck.call("t_operator", "eve_measure")
        if turn == 0:
            for name, said in CLASSES.items():
                policy = {**said["policy"], **QUICK, "payload_limit": 10**6, "attempts": 5}
                policy.pop("pools", None)
                better = {"preset": said["preset"], "policy": policy, "replay_class": "safe"}
                self.deck.call("t_operator", "eve_define_class", **{"class": name}, **better)
                self.deck.call("t_operator", "eve_unpause", **{"class": name})
        for row in self.db.rows(
            "select decision from eve.decision where queue_id = %s and phase = 'open' order by 1",
            [self.deck.queue_id],
        ):
            if self.deck.attempt("t_human", "eve_accept", decision=row.decision).refused:
                self.deck.call("t_human", "eve_decline", decision=row.decision)  # it has expired
        self.deck.call("t_human", "eve_approve_slots", pool="cloud", slots=4)

    def work(self) -> None:
        """Leases what is ready, makes and observes its effects, completes it."""
        while True:
            granted = [
                row for row in
                self.deck.call("t_worker", "eve_acquire", worker="last", pool="cloud", max_items=4)
                if row.granted
            ]  # fmt: skip
            for row in granted:
                held = {"item": row.item, "token": row.token}
                if not row.cancel_requested:
                    self.deck.call("t_worker", "eve_start_effect", **held)
                self.deck.call("t_worker", "eve_observe_effect", **held)
                self.deck.call("t_worker", "eve_complete", **held)
            if not granted:
                return

    def _held(self, item: Row) -> None:
        """A hold for edges whose parent will not be verified: a human waives the edge."""
        for hold in self.db.rows(
            "select reason, owner, trigger from eve.hold where queue_id = %s and item = %s",
            [self.deck.queue_id, item.item],
        ):
            assert hold.owner, hold
            assert hold.trigger in TRIGGERS, hold
        for edge in self.db.rows(
            "select d.on_work_id, d.on_item is null or eve._cycle(d.queue_id, d.item) is not null"
            "    or (p.queue_state).phase = any (%s) as hopeless"
            " from eve.dependency d"
            " left join eve.work_item p on p.queue_id = d.queue_id and p.item = d.on_item"
            " where d.queue_id = %s and d.item = %s and d.open order by 1",
            [sorted(ENDED), self.deck.queue_id, item.item],
        ):
            if edge.hopeless:
                (asked,) = self.deck.call("t_operator", "eve_propose", kind="waiver",
                                          item=item.item, work_id=edge.on_work_id)  # fmt: skip
                self.deck.call("t_human", "eve_accept", decision=asked.decision)

    def _uncertain(self, item: Row) -> None:
        finding = "absent" if item.item % 2 else "observed"
        self.deck.call("t_verifier", "eve_reconcile", item=item.item, finding=finding)

    def _reported(self, item: Row) -> None:
        for effect in self.db.rows(
            "select unnest(coalesce(expected_effects, array[effect_identity])) as effect"
            " from eve.intent where queue_id = %s and item = %s",
            [self.deck.queue_id, item.item],
        ):
            answer = self.deck.attempt("t_verifier", "eve_observe_effect", item=item.item,
                                       effect_identity=effect.effect)  # fmt: skip
            assert answer.refused in (None, "55000")  # the last one missing came before

    def _completed(self, item: Row) -> None:
        self.deck.call("t_verifier", "eve_verify", item=item.item)

    def _quarantined(self, item: Row) -> None:
        self.deck.call("t_human", "eve_unpark", item=item.item)


def smallest(db: Database, seed: str, steps: Sequence[int], tries: int = 120) -> Sequence[int]:
    """Fewer of the steps that still fail."""
    size = max(1, len(steps) // 2)
    while tries > 0:
        for start in range(0, len(steps), size):
            fewer = [*steps[:start], *steps[start + size :]]
            tries -= 1
            try:
                Play(db, seed).play(fewer)
            except FAILURES:
                steps = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
        size = max(1, min(size, len(steps)))
    return steps


@pytest.mark.parametrize("batch", range(4))
def test_any_sequence_of_calls_keeps_the_laws(
    db: Database, batch: int, tally: Counter[str]
) -> None:
    prepare(db)
    db.kept().execute(EVERYTHING.encode())
    for number in range(round(SEQUENCES * SCALE)):
        seed = f"{SEED} {batch} {number}"
        steps: Sequence[int] = range(LENGTHS[number % len(LENGTHS)])
        play = Play(db, seed)
        try:
            play.play(steps)
        except FAILURES:
            steps = smallest(db, seed, steps)
            play = Play(db, seed)
            try:
                play.play(steps)
            finally:
                print(f"seed {seed!r}, steps {list(steps)}:", *play.log, sep="\n")
        tally["sequences"] += 1
        tally["calls"] += sum(deck.calls for deck in play.decks)
