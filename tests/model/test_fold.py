"""Histories over every kind of event, appended for real: what is derived is what replay gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from model.ground import SCALE, as_json, as_state, dumps, prepare, scaled
from model.histories import DIGEST, Op, Walk
from model.twin import KINDS, State
from support.database import Connection, Database

REPLAYED = """
select l.item, l.version, l.at, l.kind,
    to_jsonb(eve.replay(public.event_of(l)) over (partition by l.item order by l.version)) as state,
    eve._state_shape(l.item, eve.replay(public.event_of(l))
        over (partition by l.item order by l.version)) as shaped
from eve.ledger as l where l.queue_id = %s order by l.item, l.version
"""
FORGET = """
delete from eve.work_item where queue_id = %(q)s;
delete from eve.ready where queue_id = %(q)s;
delete from eve.hold where queue_id = %(q)s;
delete from eve.held_slot where queue_id = %(q)s;
delete from eve.free_slot where queue_id = %(q)s;
"""


def begin_queue(kept: Connection, walk: Walk) -> int:
    """Intents for its items; the queue itself begins with its first event."""
    row = kept.execute("select nextval('eve.queue_id_seq') as id").fetchone()
    assert row is not None
    queue_id: int = row.id
    kept.execute(
        "insert into eve.intent (queue_id, item, work_id, class_id, lane, payload_size,"
        " payload_digest, operation_identity, effect_identity, cancellation_identity, requested_at,"
        " priority_class, replay_class, completion_test, depth, edges, derived, principal,"
        " submitted_at)"
        " select %s, n, n::text, 1 + n %% 2, 1 + n %% 2, 2, decode(%s, 'hex'), 'op', 'op:' || n,"
        " n::text, now(), 2, 'safe', 'report', 0, 0, '{}', 'alice', now()"
        " from generate_series(1, %s) as n",
        [queue_id, DIGEST, walk.items],
    )
    walk.ops[0].data["name"] = f"q{queue_id}"
    return queue_id


def append(kept: Connection, queue_id: int, ops: Sequence[Op]) -> list[Any]:
    script = dumps(
        [
            {"item": op.item, "event": as_json(op.event), "data": op.data, "actor": op.actor}
            for op in ops
        ]
    )
    rows = kept.execute("select public.run_events(%s, %s::jsonb) as r", [queue_id, script])
    return [row.r for row in rows]


def test_live_is_replay_is_rebuilt_for_any_history(db: Database, tally: Counter[str]) -> None:
    prepare(db)
    kept = db.kept()
    seen: Counter[str] = Counter()

    @scaled(1200)
    @given(
        st.randoms(use_true_random=True),
        st.integers(1, 8),
        st.integers(1, 110),
        st.lists(st.integers(0, 100), max_size=2),
    )
    def law(rnd: Random, items: int, length: int, cuts: list[int]) -> None:
        walk = Walk(rnd, items).run(length)
        queue_id = begin_queue(kept, walk)
        answers: list[Any] = []
        bounds = [0, *sorted(cuts), len(walk.ops)]
        for start, end in pairwise(bounds):
            answers += append(kept, queue_id, walk.ops[start:end])
        states = agree(walk.ops, answers)
        only_forward(states)
        replays(queue_id, states, rnd)
        audit = db.call("postgres", "eve_audit", queue=f"q{queue_id}")
        assert audit.clean, audit.faults
        rebuilt(queue_id)
        tally["histories"] += len(states)
        tally["events"] += sum(map(len, states.values()))

    def agree(ops: Sequence[Op], answers: Sequence[Any]) -> dict[int, list[State]]:
        """Each event is taken or refused as the twin says, and gives the twin's state."""
        states: dict[int, list[State]] = {}
        for op, answer in zip(ops, answers, strict=True):
            if op.expected is None:
                assert answer == "55000" or (op.misplaced and answer == "23514"), (op, answer)
                seen["refused"] += 1
            else:
                assert not isinstance(answer, str), (op, answer)
                lived = as_state(answer)
                if op.expected.slot is not None and lived.slot is not None:
                    assert lived == replace(op.expected, slot=lived.slot), op
                else:
                    assert lived == op.expected, op
                states.setdefault(op.item, []).append(lived)
                seen[op.event.kind] += 1
        return states

    def replays(queue_id: int, states: dict[int, list[State]], rnd: Random) -> None:
        """The aggregate over each prefix gives the state that was live then, and as of then."""
        rows = kept.execute(REPLAYED, [queue_id]).fetchall()
        assert [(r.item, r.version) for r in rows] == [
            (item, n + 1) for item in sorted(states) for n in range(len(states[item]))
        ]
        for row in rows:
            assert as_state(row.state) == states[row.item][row.version - 1], row
            assert row.shaped, row
        for item, lived in states.items():
            instant = rnd.choice(lived).at + timedelta(microseconds=rnd.randrange(-1, 2))
            then = [s for s in lived if s.at <= instant]
            answer = db.value(
                "select eve_replay(%s, %s, as_of => %s)", [f"q{queue_id}", item, instant]
            )
            assert (answer and as_state(answer)) == (then[-1] if then else None)

    def rebuilt(queue_id: int) -> None:
        """Dropped and folded anew, or only folded anew: the same values."""
        query = "select public.derived(%s) as d"
        live = db.value(query, [queue_id])
        for forget in (False, True):
            if forget:
                with kept.transaction():
                    kept.execute(FORGET.replace("%(q)s", str(queue_id)).encode())
            answer = db.call("postgres", "eve_rebuild", queue=f"q{queue_id}")
            assert answer.clean, answer.faults
            assert db.value(query, [queue_id]) == live

    law()
    assert set(KINDS) <= set(seen), set(KINDS) - set(seen)
    assert tally["histories"] >= 2000 or SCALE < 1


def only_forward(states: dict[int, list[State]]) -> None:
    """Versions are dense; tokens and attempts never go back, and each lease has a new token."""
    for item, lived in states.items():
        assert [s.version for s in lived] == list(range(1, len(lived) + 1))
        for was, now in pairwise(lived):
            assert now.at >= was.at
            if item == 0:
                continue
            assert was.token is not None
            assert now.token is not None
            assert now.token >= was.token
            assert (now.attempts or 0) >= (was.attempts or 0)
            if now.phase == "leased" and was.phase != "leased":
                assert now.token > was.token
