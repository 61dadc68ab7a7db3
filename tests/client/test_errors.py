"""Refusals as exceptions: raised by psycopg, made from rows, found in other drivers."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import psycopg
import pytest

from eve_queue import Queue, calls, errors
from eve_queue.errors import EveError, StaleFence
from support.database import Database

MakeQueue = Callable[..., str]


def test_psycopg_raises_the_class_declared_with_the_sqlstate(
    db: Database, make_queue: MakeQueue
) -> None:
    make_queue()
    item = db.call("t_producer", "eve_submit", queue="q").item
    with pytest.raises(StaleFence) as caught:
        db.call("t_worker", "eve_complete", queue="q", item=item, token=99)
    error = caught.value
    assert (error.sqlstate, error.code, error.http_status, error.retry) == (
        "VE301", "stale_fence", 412, "stop",
    )  # fmt: skip
    assert isinstance(error, psycopg.DatabaseError)
    assert error.message == StaleFence.default_message
    assert (error.detail["item"], error.detail["token"]) == (item, 99)
    assert error.next == ("eve_acquire('q', …)",)
    assert error.hint == StaleFence.default_hint
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.detail, again.message) == (StaleFence, error.detail, error.message)


def test_a_returned_refusal_is_raised_on_request(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    db.call("t_operator", "eve_halt", queue="q")
    with Queue(db.dsn("t_worker"), "q") as queue:
        job = queue.acquire("w")
        assert not job
        with pytest.raises(errors.FleetHalted) as caught:
            job.raise_for_refusal()
    assert caught.value.retry == "later"
    assert caught.value.next == ("eve_acquire('q', …) after eve_resume('q')",)


def test_an_answer_without_refusal_is_given_back(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    with Queue(db.dsn("t_worker"), "q") as queue:
        (answer,) = queue.call(calls.acquire("q", "w"))
    assert answer.raise_for_refusal() is answer


def test_errors_that_are_no_refusal_stay_those_of_psycopg(
    db: Database, make_queue: MakeQueue
) -> None:
    make_queue()
    with Queue(db.dsn("t_worker"), "elsewhere") as queue, pytest.raises(psycopg.Error) as caught:
        queue.acquire("w")
    assert (caught.value.sqlstate, isinstance(caught.value, EveError)) == ("P0002", False)
    assert errors.from_driver(caught.value) is None


class Foreign(Exception):
    """As asyncpg has it: fields of its own, no diagnostics."""

    sqlstate = "VE304"
    message = "the caller does not hold a live lease on the item"
    detail = '{"code": "not_lease_holder", "item": 7, "next": ["a call"]}'
    hint = "Stop."


def test_a_refusal_is_found_in_the_error_of_another_driver() -> None:
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = Foreign()
    for error in (Foreign(), wrapped):
        found = errors.from_driver(error)
        assert isinstance(found, errors.NotLeaseHolder)
        assert (found.message, found.hint, found.next) == (Foreign.message, "Stop.", ("a call",))
        assert found.detail["item"] == 7
    assert errors.from_driver(RuntimeError("other")) is None


def test_a_refusal_made_here_has_message_and_hint_of_the_vocabulary() -> None:
    made = errors.refusal("spend_not_approved")
    assert str(made) == made.message == "the pool has no slots that a human approved"
    assert made.hint == "A human accepts the spend with eve_approve_slots."
    assert (made.detail, made.next) == ({}, ())
    with pytest.raises(KeyError):
        errors.refusal("no_such_code")
