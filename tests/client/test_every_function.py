"""Every function of the queue is called once through the client, and answers what its type says."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from eve_queue import Call, Queue, answers, calls
from eve_queue.answer import Answer
from support.database import Database
from support.servers import ROOT

R = TypeVar("R")
CALLED: set[str] = set()


def check(answer: object) -> None:
    """No field is null that is typed as never null."""
    rows = answer if isinstance(answer, list) else [answer]
    for row in rows:
        if not isinstance(row, Answer):
            continue
        hints = typing.get_type_hints(type(row), vars(answers) | vars(typing))
        for field in dataclasses.fields(row):
            kind = hints[field.name]
            value = getattr(row, field.name)
            if value is None:
                assert kind is Any or type(None) in typing.get_args(kind), (type(row), field.name)
            elif kind is not Any and typing.get_origin(kind) is not tuple:
                plain = next(k for k in (typing.get_args(kind) or [kind]) if k is not type(None))
                if plain in (str, int, bool, bytes, datetime):
                    assert type(value) is plain, (type(row), field.name, value)


class Watched(Queue):
    """A queue that checks each answer and remembers which functions were called."""

    def call(self, call: Call[R]) -> R:
        answer = super().call(call)
        CALLED.add(call.function)
        check(answer)
        return answer


@pytest.fixture
def acting(db: Database, make_queue: Callable[..., str]) -> Iterator[Callable[[str], Watched]]:
    make_queue("elsewhere")
    with ExitStack() as stack:
        opened: dict[str, Watched] = {}

        def as_role(role: str) -> Watched:
            if role not in opened:
                opened[role] = stack.enter_context(Watched(db.dsn(f"t_{role}"), "q"))
            return opened[role]

        yield as_role


def test_every_function_can_be_called(db: Database, acting: Callable[[str], Watched]) -> None:
    operator, producer, worker = acting("operator"), acting("producer"), acting("worker")
    human, verifier, auditor = acting("human"), acting("verifier"), acting("auditor")
    operator.create_queue("safe", durability="any")
    for role in ("producer", "worker", "verifier", "human", "auditor"):
        operator.grant_access(f"t_{role}", role)
    operator.revoke_access("t_nobody", "human")
    operator.define_class("review", preset="agent_task", replay_class="safe")
    operator.define_class("mail", preset="effect", replay_class="reconcilable")
    operator.define_pool("spare")
    human.approve_slots("cloud", 5)
    operator.contract()

    # a life by hand
    a = producer.submit({"n": 1}, work_id="a")
    producer.submit({"n": 2}, work_id="b", after=["a"])
    assert producer.submit({"n": 3}, work_id="a", must_admit=False).decision == "REJECT"
    (held,) = worker.call(calls.acquire("q", "w", ttl="60 s"))
    assert held.item == a.item
    assert held.token is not None
    lease = (held.item or 0, held.token)
    worker.fence(*lease)
    worker.renew(*lease, progress={"done": 1})
    worker.complete(*lease, result={"ok": True})
    (again,) = worker.turn("w")
    worker.fail(again.item or 0, again.token or 0, error="broken")
    operator.halt()
    (refused,) = worker.turn("w")
    assert refused.refusal == "fleet_halted"
    human.resume()
    operator.pause(pool="cloud")
    operator.unpause(pool="cloud")
    producer.submit(work_id="c")
    (again,) = worker.turn("w")
    worker.return_(
        again.item or 0, again.token or 0, reason="later", until=datetime(2099, 1, 1, tzinfo=UTC)
    )
    operator.reprioritise(again.item or 0, 0)
    producer.cancel(again.item or 0)
    producer.submit(work_id="d")
    (again,) = worker.turn("w")
    (batch,) = worker.complete_batch([again.item or 0], [again.token or 0], results=[None])
    assert batch.phase == "verified"

    # review, effects, quarantine
    producer.submit(work_id="e", class_="review")
    (again,) = worker.turn("w")
    worker.complete(again.item or 0, again.token or 0)
    verifier.verify(again.item or 0, evidence={"kind": "seen"})
    verifier.compensate(again.item or 0, "refund", {"kind": "receipt"})
    producer.submit(work_id="f", class_="mail")
    (again,) = worker.turn("w")
    worker.start_effect(again.item or 0, again.token or 0)
    worker.observe_effect(again.item or 0, token=again.token, evidence=[])
    worker.fail(again.item or 0, again.token or 0, disposition="uncertain")
    verifier.reconcile(again.item or 0, "absent")
    producer.submit(work_id="g", priority_class=0)
    (again,) = worker.turn("w")
    worker.fail(again.item or 0, again.token or 0, disposition="dead")
    human.unpark(again.item or 0)
    human.reject(again.item or 0, "no longer wanted")

    # decisions
    asked = operator.propose("import", subject={"from": "elsewhere"})
    human.accept(asked.decision or 0)
    verifier.settle_import(asked.decision or 0, "old")
    asked = operator.propose("policy")
    human.decline(asked.decision or 0)

    # reading, and keeping in order
    for reader in (producer, auditor):
        reader.item(work_id="a")
        reader.explain(work_id="b")
        assert reader.checks(work_id="b")
        assert reader.statement(work_id="b").statement
    auditor.history(0)
    auditor.stats()
    auditor.replay(a.item or 0)
    operator.sweep()
    operator.recover()
    assert operator.measure()
    assert operator.set_health("mail", "healthy").done
    operator.recheck()
    since = datetime(2020, 1, 1, tzinfo=UTC)
    assert (
        operator.backtest("default", policy={"replay_class": "safe"}, since=since)[-1].part
        == "summary"
    )
    operator.new_epoch()
    assert operator.rebuild().clean
    assert auditor.audit()[0].clean
    db.rows("create table public.sent (item bigint, token bigint)")
    db.rows("alter table public.sent owner to t_operator")
    operator.fence_table("public.sent", "item", "token")
    assert set(calls.FUNCTIONS) == CALLED


def test_the_client_alone_needs_only_psycopg() -> None:
    script = (
        "import sys, eve_queue;"
        "print(sorted({'yaml', 'typer', 'rich', 'debian', 'sqlalchemy', 'asyncpg'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "client")},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
