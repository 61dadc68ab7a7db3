"""One live item an effect: submissions of one identity at once, and against the first one's end."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg
import pytest

from support.desk import Desk
from support.race import ABOVE, LEVELS, RETRY, rush, scaled
from support.session import PATIENCE, Session

Open = Callable[[str], Session]

UNIQUE = {"replay_class": "reconcilable", "preset": "effect", "effect_unique": True}


@pytest.fixture
def unique(desk: Desk) -> Desk:
    desk.define("default", **UNIQUE)
    return desk


@pytest.mark.usefixtures("unique")
@pytest.mark.parametrize("ending", ["commit", "rollback"])
@pytest.mark.parametrize("level", LEVELS)
def test_of_two_submissions_one_is_admitted(session: Open, level: str, ending: str) -> None:
    a, b = session("t_producer"), session("t_producer")
    a.execute("begin")
    assert a.call("eve_submit", queue="q", effect_identity="e").decision == "ADMIT"
    b.execute(f"begin isolation level {level}")
    pending = b.start_call("eve_submit", queue="q", effect_identity="e")
    b.until_waiting()
    a.execute(ending)
    if ending == "commit" and level in ABOVE:
        with pytest.raises(psycopg.errors.SerializationFailure):
            pending.result(PATIENCE)
        return
    second = pending.result(PATIENCE)[0]
    b.execute("commit")
    assert second.decision == ("HOLD" if ending == "commit" else "ADMIT")


def test_the_end_of_the_first_waits_for_no_open_submission(unique: Desk, session: Open) -> None:
    """And what it missed is found by the second look."""
    first = unique.item(effect_identity="e")
    lease = unique.lease(item=first)
    b = session("t_producer")
    b.execute("begin")
    second = b.call("eve_submit", queue="q", effect_identity="e")
    assert second.reason == "effect_already_live"
    with unique.db.connect("t_worker") as worker:
        worker.execute("set statement_timeout = '20 s'")
        worker.execute("select eve_return('q', %s, %s)", [lease.item, lease.token])
    with unique.db.connect("t_operator") as operator:
        operator.execute("set statement_timeout = '20 s'")
        operator.execute("select eve_cancel('q', item => %s)", [first])
        operator.execute("select eve_sweep('q')")
    b.execute("commit")
    unique.sweep()
    assert unique.phase(second.item) == "ready"


def test_neither_end_nor_sweep_waits_for_who_is_taking_it(unique: Desk, session: Open) -> None:
    """A submission that took a free identity and did not commit: the others wait on."""
    first = unique.item(effect_identity="e")
    a, b = session("t_producer"), session("t_producer")
    a.execute("begin")
    waiting = a.call("eve_submit", queue="q", effect_identity="e").item
    unique.call("t_operator", "eve_cancel", item=first)
    b.execute("begin")
    taker = b.call("eve_submit", queue="q", effect_identity="e")
    assert taker.decision == "ADMIT"
    a.execute("commit")
    with unique.db.connect("t_operator") as operator:
        operator.execute("set statement_timeout = '20 s'")
        operator.execute("select eve_sweep('q')")
    assert unique.phase(waiting) == "held"
    b.execute("commit")
    unique.call("t_operator", "eve_cancel", item=taker.item)
    assert unique.phase(waiting) == "ready"


def test_a_rush_never_has_two_live(unique: Desk) -> None:
    def run(dice: random.Random) -> None:
        with unique.db.connect("t_producer") as producer, unique.db.connect("t_operator") as other:
            for _ in range(scaled(25)):
                effect = f"e{dice.randrange(3)}"
                try:
                    row = producer.execute(
                        "select item from eve_submit('q', effect_identity => %s)", [effect]
                    ).fetchone()
                    if row and row[0] and dice.random() < 0.6:
                        other.execute("select eve_cancel('q', item => %s)", [row[0]])
                    if dice.random() < 0.1:
                        other.execute("select eve_sweep('q')")
                except RETRY:
                    pass

    rush([run] * 4)
    unique.sweep()
    unique.sweep()
    assert not unique.db.rows(
        "select i.effect_identity from eve.intent as i"
        " join eve.work_item as w on w.queue_id = i.queue_id and w.item = i.item"
        " where i.queue_id = %s and (w.queue_state).phase = 'ready'"
        " group by i.effect_identity having count(*) > 1",
        [unique.id],
    )
    assert not unique.db.rows(
        "select h.item from eve.hold as h where h.queue_id = %s and not exists ("
        " select from eve.live_effect as e where e.queue_id = h.queue_id"
        " and e.effect_identity = h.ref and e.item is not null)",
        [unique.id],
    )
