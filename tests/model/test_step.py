"""The step of the database and its twin agree on every state and event, legal or not."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from model.ground import as_json, as_state, dumps, prepare, scaled
from model.histories import PHASES, START, any_event
from model.twin import KINDS, State, attempt, step, words
from support.database import Database

NEVER_READY = words("held quarantined rejected expired cancelled coalesced dead")
AT_ONCE = 60


def any_state(rnd: Random) -> State | None:
    """A state of possible shape; one that never was ready had no lease and no effect either."""
    if rnd.random() < 0.05:
        return None
    at = START + timedelta(seconds=rnd.randrange(100))
    if rnd.random() < 0.05:
        return State(version=rnd.randrange(1, 9), at=at)
    phase = rnd.choice(PHASES)
    leased = phase == "leased"
    never_ready = phase in NEVER_READY and rnd.random() < 0.3
    since = None if never_ready else at - timedelta(seconds=rnd.randrange(9))
    return State(
        version=rnd.randrange(1, 9),
        at=at,
        phase=phase,
        attempts=rnd.randrange(5) + leased,
        allowance=rnd.randrange(3),
        credits=rnd.randrange(3),
        token=rnd.choice([0, 1, 2, 2**32 + 1, 2**53 - 2]) + leased,
        principal="a" if leased else None,
        worker="w" if leased else None,
        pool="wide" if leased else None,
        slot=1 if leased else None,
        acquired_at=at - timedelta(seconds=2) if leased else None,
        expires_at=at + timedelta(seconds=rnd.randrange(9)) if leased else None,
        ready_since=since,
        late=None if never_ready else rnd.random() < 0.5,
        rank=rnd.randrange(4),
        revision=1,
        effect_started=not never_ready and rnd.random() < 0.5,
        cancel_requested=rnd.random() < 0.3,
        reason=rnd.choice([None, "before"]),
    )


def test_the_step_is_its_twin_and_total(db: Database, tally: Counter[str]) -> None:
    """It gives the same state or refuses with 55000, and never a state of impossible shape."""
    prepare(db)
    kept = db.kept()
    seen: Counter[str] = Counter()

    @scaled(250)
    @given(st.randoms(use_true_random=True))
    def agree(rnd: Random) -> None:
        pairs = [(s, any_event(rnd, s, rnd.choice(KINDS))) for s in
                 (any_state(rnd) for _ in range(AT_ONCE))]  # fmt: skip
        answers = kept.execute(
            "select a.state, coalesce(a.state ->> 'phase', 'none') as phase,"
            "    jsonb_typeof(a.state) = 'string' or eve._state_shape("
            "        (a.state ->> 'phase' is not null)::integer,"
            "        jsonb_populate_record(null::eve.state, a.state)) as shaped"
            " from unnest(%s::jsonb[], %s::jsonb[]) with ordinality as p (state, event, place)"
            " cross join lateral (select public.try_step(p.state, p.event) as state offset 0) as a"
            " order by p.place",
            [[dumps(as_json(s)) for s, _ in pairs], [dumps(as_json(e)) for _, e in pairs]],
        ).fetchall()
        for (state, event), answer in zip(pairs, answers, strict=True):
            tally["steps"] += 1
            wanted = attempt(step, state, event)
            if wanted is None:
                assert answer.state == "55000", (state, event)
                seen["refused"] += 1
            else:
                assert answer.state != "55000", ("refused", state, event, wanted)
                assert as_state(answer.state) == wanted, (state, event)
                assert answer.shaped, (state, event, answer.state)
                seen[event.kind] += 1

    agree()
    assert set(KINDS) <= set(seen), set(KINDS) - set(seen)
