"""The loop around a handler: what it finishes, fails, gives back, keeps alive and gives up."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from eve_queue import AsyncQueue, AsyncWorker, Queue, StaleFence, Worker
from eve_queue.tally import Backoff, Tally
from eve_queue.worker import LeasedJob
from eve_queue.worker_async import AsyncLeasedJob
from support.database import Database
from support.session import until

MakeQueue = Callable[..., str]
SHORT = {"ttl_floor": "1 s", "backoff_base": "0 s"}


@pytest.fixture(autouse=True)
def made(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    db.call("t_operator", "eve_define_class", queue="q", **{"class": "default"},
            preset="job", replay_class="safe", policy=SHORT)  # fmt: skip


@pytest.fixture
def queue(db: Database) -> Iterator[Queue]:
    with Queue(db.dsn("t_worker"), "q") as queue:
        yield queue


def submit(db: Database, *work_ids: str, **arguments: Any) -> None:
    for work_id in work_ids:
        db.call("t_producer", "eve_submit", queue="q", work_id=work_id,
                payload={"for": work_id}, **arguments)  # fmt: skip


def phase(db: Database, work_id: str) -> str:
    return str(db.call("t_operator", "eve_item", queue="q", work_id=work_id).phase)


def kinds(db: Database, work_id: str) -> list[str]:
    rows = db.calls("t_auditor", "eve_history", queue="q", work_id=work_id)
    return [row.kind for row in rows]


def test_what_the_handler_returns_is_the_result(db: Database, queue: Queue) -> None:
    submit(db, "a", "b", "c")
    seen = []

    def handle(job: LeasedJob) -> dict[str, object]:
        seen.append(job.work_id)
        return {"done": job.work_id}

    tally = Worker(queue, "w", handle).run(until_empty=True)
    assert seen == ["a", "b", "c"]
    assert tally == Tally(done=3)
    assert db.call("t_operator", "eve_item", queue="q", work_id="b").result == {"done": "b"}


def test_finishing_and_leasing_the_next_is_one_transaction(db: Database, queue: Queue) -> None:
    submit(db, "a", "b")
    Worker(queue, "w", lambda _: None).run(until_empty=True)
    rows = db.rows("select l.item, l.kind, l.tx::text from eve.ledger as l where l.item > 0")
    tx = {(row.item, row.kind): row.tx for row in rows}
    (first, second) = sorted({row.item for row in rows})
    assert tx[first, "completed"] == tx[second, "acquired"]


def test_what_the_handler_raises_is_its_failure_until_the_budget_is_spent(
    db: Database, queue: Queue
) -> None:
    submit(db, "bad", "good")

    def handle(job: LeasedJob) -> None:
        if job.work_id == "bad":
            raise RuntimeError(f"attempt {job.attempt}")

    tally = Worker(queue, "w", handle).run(until_empty=True)
    assert (tally.done, tally.failed) == (1, 3)
    assert (phase(db, "bad"), phase(db, "good")) == ("quarantined", "verified")


@pytest.mark.parametrize("result", [object(), "\0", "x" * 2_000_000])
def test_a_result_that_the_queue_cannot_take_spoils_no_other(
    db: Database, queue: Queue, result: Any
) -> None:
    db.call("t_human", "eve_approve_slots", queue="q", pool="two", slots=2)
    submit(db, "bad", "good")
    tally = Worker(queue, "w", lambda job: result if job.work_id == "bad" else 1, batch=2).run(
        until_empty=True
    )
    assert (tally.done, tally.failed) == (1, 3)
    assert (phase(db, "bad"), phase(db, "good")) == ("quarantined", "verified")


def test_a_batch_is_leased_and_finished_together(db: Database, queue: Queue) -> None:
    db.call("t_human", "eve_approve_slots", queue="q", pool="two", slots=2)
    submit(db, "a", "b", "c")
    tally = Worker(queue, "w", lambda _: None, batch=2).run(until_empty=True)
    assert tally.done == 3
    rows = db.rows("select l.tx::text, count(*) from eve.ledger as l"
                   " where l.kind = 'acquired' group by l.tx")  # fmt: skip
    assert sorted(row.count for row in rows) == [1, 2]


def test_a_lease_is_renewed_beside_the_handler(db: Database, queue: Queue) -> None:
    submit(db, "slow")

    def handle(job: LeasedJob) -> None:
        until(lambda: kinds(db, job.work_id).count("renewed") >= 4, "four renewals")

    tally = Worker(queue, "w", handle, ttl="1 s").run(until_empty=True)
    assert tally == Tally(done=1)
    history = db.calls("t_auditor", "eve_history", queue="q", work_id="slow")
    lasted = history[-1].at - history[1].at
    assert lasted > timedelta(seconds=1)
    assert "lease_expired" not in [event.kind for event in history]


def test_the_handler_is_told_that_its_lease_is_lost(db: Database, queue: Queue) -> None:
    submit(db, "a")

    def handle(job: LeasedJob) -> str:
        db.call("t_operator", "eve_cancel", queue="q", item=job.item)
        until(lambda: job.lost is not None, "the worker notices")
        with pytest.raises(StaleFence):
            job.check()
        return "too late"

    tally = Worker(queue, "w", handle, ttl="1 s").run(until_empty=True)
    assert tally == Tally(refused=1, refusals={"stale_fence": 1})
    assert phase(db, "a") == "cancelled"


def test_a_request_to_cancel_is_seen_at_the_next_renewal(db: Database, queue: Queue) -> None:
    db.call("t_operator", "eve_define_class", queue="q", **{"class": "mail"}, preset="job",
            replay_class="reconcilable",
            policy={**SHORT, "cancel_boundary": "effect_start"})  # fmt: skip
    submit(db, "a", **{"class": "mail"})

    def handle(job: LeasedJob) -> None:
        job.start_effect()
        db.call("t_operator", "eve_cancel", queue="q", item=job.item)
        until(lambda: job.cancel_requested, "the worker notices")

    assert Worker(queue, "w", handle, ttl="1 s").run(until_empty=True).done == 1


def test_a_stopped_worker_finishes_what_it_has_and_takes_nothing(
    db: Database, queue: Queue
) -> None:
    submit(db, "a", "b")
    worker = Worker(queue, "w", lambda _: worker.stop())
    assert worker.run() == Tally(done=1)
    assert (phase(db, "a"), phase(db, "b")) == ("verified", "ready")


def test_sigterm_stops_after_the_item_in_hand(db: Database, queue: Queue) -> None:
    submit(db, "a", "b")
    before = signal.getsignal(signal.SIGTERM)
    tally = Worker(queue, "w", lambda _: os.kill(os.getpid(), signal.SIGTERM)).run()
    assert tally == Tally(done=1)
    assert phase(db, "b") == "ready"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_gives_the_items_back(db: Database, queue: Queue) -> None:
    db.call("t_human", "eve_approve_slots", queue="q", pool="two", slots=2)
    submit(db, "a", "b")

    def handle(_: LeasedJob) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(20)

    worker = Worker(queue, "w", handle, batch=2)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    assert (phase(db, "a"), phase(db, "b")) == ("ready", "ready")
    assert worker.tally == Tally(returned=2)


def test_what_the_handler_finished_itself_is_left_alone(db: Database, queue: Queue) -> None:
    submit(db, "a", "b")

    def handle(job: LeasedJob) -> None:
        if job.work_id == "a":
            job.return_("waits", after=["nowhere"])
        else:
            job.complete({"by": "hand"})

    assert Worker(queue, "w", handle).run(until_empty=True) == Tally(done=1, returned=1)
    assert (phase(db, "a"), phase(db, "b")) == ("held", "verified")


def test_an_idle_worker_comes_back_when_the_queue_says_so(db: Database, queue: Queue) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    submit(db, "later", not_before=soon)
    tally = Worker(queue, "w", lambda _: None, poll=(0.05, 5)).run(until_empty=True)
    assert tally.done == 1


def test_a_lost_connection_is_no_lost_finish(db: Database, queue: Queue) -> None:
    submit(db, "a", "b")

    def handle(job: LeasedJob) -> str:
        db.rows("select pg_terminate_backend(pid) from pg_stat_activity"
                " where usename = 't_worker' and query ~ 'eve_turn'")  # fmt: skip
        return job.work_id

    tally = Worker(queue, "w", handle, poll=(0.01, 0.05)).run(until_empty=True)
    assert tally == Tally(done=2)
    assert db.call("t_operator", "eve_item", queue="q", work_id="a").result == "a"


def test_a_halted_queue_is_waited_for(db: Database, queue: Queue) -> None:
    submit(db, "a")
    db.call("t_operator", "eve_halt", queue="q")
    worker = Worker(queue, "w", lambda _: None, poll=(0.01, 0.05))
    thread = threading.Thread(target=lambda: worker.run(until_empty=True, catch_signals=False))
    thread.start()
    until(lambda: worker.tally.refusals.get("fleet_halted", 0) > 1, "it asks again")
    assert phase(db, "a") == "ready"
    db.call("t_human", "eve_resume", queue="q")
    thread.join(20)
    assert worker.tally.done == 1


def test_a_connection_of_the_caller_is_refused(db: Database) -> None:
    with pytest.raises(TypeError, match="a worker commits"):
        Worker(Queue(db.connect("t_worker"), "q"), "w", lambda _: None)


def test_a_wrong_call_ends_the_worker(db: Database) -> None:
    with Queue(db.dsn("t_worker"), "nowhere") as queue:
        worker = Worker(queue, "w", lambda _: None)
        with pytest.raises(psycopg.errors.NoDataFound):
            worker.run(until_empty=True)


def test_the_wait_grows_and_follows_the_answer() -> None:
    wait = Backoff(0.1, 5.0)
    grown = [wait.seconds() for _ in range(8)]
    for seconds, middle in zip(grown, (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5), strict=True):
        assert 0.75 * middle <= seconds <= 1.25 * middle
    assert 0.75 <= wait.seconds(retry_after=timedelta(seconds=1)) <= 1.25
    assert 3.75 <= wait.seconds(retry_after=timedelta(hours=1)) <= 6.25
    assert wait.seconds(next_at=datetime.now(UTC)) <= 0.125
    ahead = datetime.now(UTC) + timedelta(hours=1, seconds=1)
    assert wait.seconds(next_at=ahead, skew=timedelta(hours=1)) <= 1.25
    wait.reset()
    assert wait.seconds() <= 0.125


# --- the source of all this, in its own words


def test_async_one_life(db: Database) -> None:
    submit(db, "a", "b", "c", "d")

    async def live() -> Tally:
        async with AsyncQueue(db.dsn("t_worker"), "q") as queue:
            async with await queue.acquire("w") as job:
                job.result = 1
            with pytest.raises(ZeroDivisionError):
                async with await queue.acquire("w"):
                    _ = 1 // 0

            async def handle(job: AsyncLeasedJob) -> dict[str, object]:
                await asyncio.sleep(0)
                return {"done": job.work_id}

            return await AsyncWorker(queue, "w", handle).run(until_empty=True)

    assert asyncio.run(live()) == Tally(done=3)
    assert {phase(db, name) for name in "abcd"} == {"verified"}


def test_async_renews_tells_of_a_loss_and_gives_back_when_cancelled(db: Database) -> None:
    submit(db, "a", "b")

    async def live() -> Tally:
        async with AsyncQueue(db.dsn("t_worker"), "q") as queue:

            async def handle(job: AsyncLeasedJob) -> None:
                if job.work_id == "a":
                    while kinds(db, "a").count("renewed") < 2:
                        await asyncio.sleep(0.01)
                    db.call("t_operator", "eve_cancel", queue="q", item=job.item)
                    while job.lost is None:
                        await asyncio.sleep(0.01)
                else:
                    os.kill(os.getpid(), signal.SIGTERM)
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(0)
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(20)

            worker = AsyncWorker(queue, "w", handle, ttl="1 s")
            with pytest.raises(asyncio.CancelledError):
                await worker.run()
            return worker.tally

    assert asyncio.run(live()) == Tally(returned=1, refused=1, refusals={"stale_fence": 1})
    assert (phase(db, "a"), phase(db, "b")) == ("cancelled", "ready")
