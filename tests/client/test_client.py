"""Queue and Job: whose transaction it is, and how an item ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from eve_queue import Job, JsonText, NotAdmitted, NotLeaseHolder, Queue, StaleFence, calls
from support.database import Database
from support.session import Session, until

MakeQueue = Callable[..., str]


@pytest.fixture(autouse=True)
def made(make_queue: MakeQueue) -> str:
    return make_queue()


def phase(db: Database, work_id: str) -> str:
    return str(db.call("t_operator", "eve_item", queue="q", work_id=work_id).phase)


def kinds(db: Database, work_id: str) -> list[str]:
    rows = db.calls("t_auditor", "eve_history", queue="q", work_id=work_id)
    return [row.kind for row in rows]


def submit(db: Database, *work_ids: str) -> None:
    with Queue(db.dsn("t_producer"), "q") as queue:
        for work_id in work_ids:
            queue.submit({"for": work_id}, work_id=work_id)


# --- transactions


def test_a_submission_stands_and_falls_with_the_writes_of_the_caller(db: Database) -> None:
    db.rows("create table public.letter (id int); grant all on public.letter to t_producer")
    with psycopg.connect(db.dsn("t_producer")) as connection:
        queue = Queue(connection, "q")
        connection.execute("insert into letter values (1)")
        queue.submit(work_id="kept")
        connection.commit()
        connection.execute("insert into letter values (2)")
        queue.submit(work_id="lost")
        connection.rollback()
    assert [row.id for row in db.rows("select id from letter")] == [1]
    assert phase(db, "kept") == "ready"
    with pytest.raises(psycopg.errors.NoDataFound):
        phase(db, "lost")


def test_a_connection_of_the_caller_is_never_committed_rolled_back_or_closed(db: Database) -> None:
    connection = db.connect("t_producer", autocommit=False)
    with Queue(connection, "q") as queue:
        assert not queue.owns_transactions
        queue.submit(work_id="a")
        with pytest.raises(NotAdmitted):
            queue.submit(work_id="a")
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
    assert not connection.closed
    connection.rollback()
    with pytest.raises(psycopg.errors.NoDataFound):
        phase(db, "a")


def test_a_lease_exists_once_its_transaction_has_committed(db: Database) -> None:
    submit(db, "a")
    connection = db.connect("t_worker", autocommit=False)
    job = Queue(connection, "q").acquire("w")
    assert job
    assert phase(db, "a") == "ready"
    connection.commit()
    assert phase(db, "a") == "leased"


def test_with_a_dsn_each_call_is_a_transaction_of_its_own(db: Database) -> None:
    with Queue(db.dsn("t_producer"), "q") as queue:
        assert queue.owns_transactions
        queue.submit(work_id="a")
        assert phase(db, "a") == "ready"


def test_with_a_pool_each_call_is_a_transaction_of_its_own(db: Database) -> None:
    with ConnectionPool(db.dsn("t_producer"), min_size=1, max_size=2, open=True) as pool:
        queue = Queue(pool, "q")
        assert queue.owns_transactions
        queue.submit(work_id="a")
        assert phase(db, "a") == "ready"
        with pytest.raises(NotAdmitted):
            queue.submit(work_id="a")
        queue.submit(work_id="b")
    assert phase(db, "b") == "ready"


def test_a_lost_connection_is_opened_again_by_the_next_call(db: Database) -> None:
    with Queue(db.dsn("t_producer"), "q") as queue:
        queue.submit(work_id="a")
        db.rows("select pg_terminate_backend(pid) from pg_stat_activity where usename='t_producer'")
        with pytest.raises(psycopg.OperationalError):
            queue.submit(work_id="b")
        assert queue.submit(work_id="b").decision == "ADMIT"


def test_a_deadlock_is_tried_again_in_a_transaction_of_our_own(
    db: Database, session: Callable[[str], Session]
) -> None:
    submit(db, "a", "b")
    db.call("t_human", "eve_approve_slots", queue="q", pool="many", slots=2)
    with Queue(db.dsn("t_worker"), "q") as queue:
        jobs = [queue.acquire("w"), queue.acquire("w")]
        rival = session("postgres")
        lock = "select from eve.held_slot where item = {} for update"
        rival.execute("set deadlock_timeout = '1min'")
        rival.execute("begin")
        rival.execute(lock.format(jobs[1].item))
        answers: list[Any] = []
        ours = threading.Thread(
            target=lambda: answers.extend(
                queue.complete_batch([job.item for job in jobs], [job.token for job in jobs])
            )
        )
        ours.start()
        until(
            lambda: bool(
                db.value(
                    "select count(*) from pg_stat_activity"
                    " where usename = 't_worker' and wait_event_type = 'Lock'"
                )
            ),
            "the batch waits for the rival",
        )
        rival.execute(lock.format(jobs[0].item))  # ours is the victim, gives way and tries again
        rival.execute("commit")
        ours.join(20)
    assert [answer.phase for answer in answers] == ["verified", "verified"]


# --- submission


def test_what_is_not_admitted_is_raised_unless_the_caller_asks_for_the_row(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_producer"), "q") as queue:
        with pytest.raises(NotAdmitted) as caught:
            queue.submit(work_id="a")
        told = queue.submit(work_id="a", must_admit=False)
    assert caught.value.detail["reason"] == "work_id_taken"
    assert (told.decision, told.reason, told.item) == ("REJECT", "work_id_taken", None)
    with pytest.raises(NotAdmitted):
        told.raise_for_refusal()


def test_json_text_goes_as_it_is(db: Database) -> None:
    with Queue(db.dsn("t_producer"), "q") as queue:
        assert queue.submit(JsonText("null"), work_id="null").decision == "ADMIT"
        assert queue.item(work_id="null").payload is None
        queue.submit(JsonText('{"n": 1.50}'), work_id="text")
        assert queue.item(work_id="text").payload == {"n": 1.5}


# --- the life of a job


def test_a_block_that_ends_completes_the_item_with_its_result(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with queue.acquire("w1") as job:
            assert job
            assert (job.work_id, job.payload, job.attempt) == ("a", {"for": "a"}, 1)
            job.result = {"sent": True}
        assert job.finished is not None
        assert job.finished.phase == "verified"
        assert queue.item(work_id="a").result == {"sent": True}


def test_nothing_to_do_is_a_job_that_is_false(db: Database) -> None:
    with Queue(db.dsn("t_worker"), "q") as queue, queue.acquire("w1") as job:
        assert not job
        assert (job.payload, job.attempt, job.answer.refusal) == (None, 0, None)
        assert job.raise_for_refusal() is job
        assert repr(job) == "<Job q: nothing ready>"
        with pytest.raises(LookupError, match="nothing was leased"):
            job.renew()


def test_a_block_that_raises_reports_the_failure_and_raises_on(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with pytest.raises(ZeroDivisionError), queue.acquire("w1"):
            _ = 1 // 0
        read = queue.item(work_id="a")
    assert (read.phase, read.attempts_left) == ("held", 2)
    failed = db.calls("t_auditor", "eve_history", queue="q", work_id="a")[-1]
    assert failed.kind == "failed"
    assert failed.reason.startswith("ZeroDivisionError: ")


@pytest.mark.parametrize("text", ["", "nul \0 and \udcff", "é" * 100_000])
def test_any_error_text_can_be_reported(db: Database, text: str) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue, pytest.raises(ValueError), queue.acquire("w1"):  # noqa: PT011
        raise ValueError(text)
    assert kinds(db, "a")[-1] == "failed"


def test_a_block_that_is_interrupted_gives_the_item_back_at_no_cost(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with pytest.raises(KeyboardInterrupt), queue.acquire("w1"):
            raise KeyboardInterrupt
        read = queue.item(work_id="a")
    assert (read.phase, read.attempts_left) == ("ready", 3)


def test_what_the_block_finished_itself_is_left_alone(db: Database) -> None:
    submit(db, "a", "b", "c")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with queue.acquire("w1") as job:
            job.complete({"by": "hand"})
        with queue.acquire("w1") as job:
            job.return_("later", until=None, after=["nowhere"])
        with queue.acquire("w1") as job:
            job.fail("broken", disposition="dead", detail={"code": 7})
    assert [phase(db, name) for name in "abc"] == ["verified", "held", "quarantined"]


def test_a_stale_completion_at_the_end_of_a_block_is_raised(db: Database) -> None:
    submit(db, "a")
    db.clock.set("2031-06-01 12:00Z")
    with Queue(db.dsn("t_worker"), "q") as queue:

        def too_slow() -> None:
            with queue.acquire("slow") as slow:
                db.clock.advance(901)
                with queue.acquire("quick") as quick:
                    assert quick.item == slow.item
                    quick.result = "second"

        with pytest.raises(StaleFence):
            too_slow()
        assert queue.item(work_id="a").result == "second"


def test_a_lapsed_lease_is_not_reported_as_a_failure(db: Database) -> None:
    submit(db, "a")
    db.clock.set("2031-06-01 12:00Z")

    def renew_too_late() -> None:
        with Queue(db.dsn("t_worker"), "q") as queue, queue.acquire("w") as job:
            db.clock.advance(901)
            job.renew()

    with pytest.raises(NotLeaseHolder) as caught:
        renew_too_late()
    assert any("its lease is lost" in note for note in caught.value.__notes__)
    assert "failed" not in kinds(db, "a")


def test_a_failure_that_cannot_be_reported_is_a_note_of_the_error(db: Database) -> None:
    submit(db, "a")
    db.clock.set("2031-06-01 12:00Z")

    def fail_too_late() -> None:
        with Queue(db.dsn("t_worker"), "q") as queue, queue.acquire("w"):
            db.clock.advance(901)
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError) as caught:
        fail_too_late()
    assert any("was not reported as failed" in note for note in caught.value.__notes__)


def test_in_a_failed_transaction_of_the_caller_nothing_more_is_said(db: Database) -> None:
    submit(db, "a")
    connection = db.connect("t_worker", autocommit=False)
    queue = Queue(connection, "q")
    with pytest.raises(psycopg.errors.DivisionByZero) as caught, queue.acquire("w"):
        connection.execute("select 1 / 0")
    assert any("ends with its rollback" in note for note in caught.value.__notes__)
    connection.rollback()
    assert phase(db, "a") == "ready"


@pytest.mark.parametrize("result", [object(), float("inf"), "\0"])
def test_a_result_that_the_queue_cannot_take_is_a_failure_of_the_item(
    db: Database, result: Any
) -> None:
    submit(db, "a")
    queue = Queue(db.connect("t_worker"), "q")
    with pytest.raises((TypeError, ValueError, psycopg.DataError)), queue.acquire("w") as job:
        job.result = result
    assert kinds(db, "a")[-1] == "failed"


def test_progress_and_checkpoint_reach_the_next_holder(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with queue.acquire("first") as job:
            before = job.expires_at
            told = job.progress({"pages": 3}, checkpoint={"page": 3})
            assert before is not None
            assert told.expires_at >= before
            job.return_()
        assert queue.item(work_id="a").progress == {"pages": 3}
        with queue.acquire("second") as job:
            assert (job.checkpoint, job.attempt) == ({"page": 3}, 2)


def test_a_fenced_write_of_a_lost_lease_does_not_commit(db: Database) -> None:
    submit(db, "a", "b")
    db.clock.set("2031-06-01 12:00Z")
    db.rows("create table public.sent (id text); grant all on public.sent to t_worker")
    with Queue(db.dsn("t_worker"), "q") as queue, psycopg.connect(db.dsn("t_worker")) as own:
        with queue.acquire("w") as job, own.transaction():
            job.fence(own)
            own.execute("insert into sent values (%s)", [job.work_id])
        job = queue.acquire("w")
        db.clock.advance(901)

        def write_too_late() -> None:
            with own.transaction():
                own.execute("insert into sent values (%s)", [job.work_id])
                job.fence(own)

        with pytest.raises(NotLeaseHolder):
            write_too_late()
    assert [row.id for row in db.rows("select id from sent")] == ["a"]


def test_a_job_starts_and_observes_effects_and_submits_children(db: Database) -> None:
    db.call("t_operator", "eve_define_class", queue="q", **{"class": "mail"},
            preset="effect", replay_class="reconcilable")  # fmt: skip
    with Queue(db.dsn("t_producer"), "q") as queue:
        queue.submit(work_id="parent", class_="mail", effect_identity="letter")
    with Queue(db.dsn("t_worker"), "q") as queue:
        with queue.acquire("w", classes=["mail"]) as job:
            job.start_effect("letter")
            child = job.submit({"n": 1}, work_id="child", priority_class=0)
            job.observe_effect("letter", evidence={"kind": "receipt", "note": "7"})
        assert job.finished is not None
        assert job.finished.phase == "verified"
    assert child.decision == "ADMIT"
    assert phase(db, "child") == "ready"


def test_a_job_is_made_from_a_row_of_a_turn(db: Database) -> None:
    submit(db, "a")
    with Queue(db.dsn("t_worker"), "q") as queue:
        (row,) = queue.turn("w")
        job = queue.job(row)
        assert isinstance(job, Job)
        assert (job.work_id, job.lease) == ("a", (row.item, row.token))
        (again,) = queue.call(calls.acquire("q", "w"))
        assert queue.job(again).answer.refusal == "concurrency_exhausted"
