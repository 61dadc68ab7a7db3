"""A worker: takes what is ready, hands it to a function, finishes it. The source of `worker`.

    async def handle(job: AsyncJob) -> Json:
        return {"sent": await send(job.payload)}

    async with AsyncQueue("dbname=app", "mail") as queue:
        await AsyncWorker(queue, "w1", handle).run()

What the handler returns is the result; what it raises is reported with eve_fail. Finishing one item
and leasing the next is one call and one commit (eve_turn). Leases are renewed beside the handler at
a third of their time, on a connection of its own (a pool needs two). When a lease is lost,
`job.lost` is set and `job.check()` raises: the handler stops working on the item, and the queue
refuses its finish. When the answer of a turn is lost, the finish is asked again and gets its first
answer; what was leased meanwhile comes back when its lease lapses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import psycopg
from psycopg.rows import tuple_row

from ._wait_async import Background, Event, Handled, Interrupted, signals
from .answers import AcquisitionAnswer, TurnAnswer
from .call import encoded
from .client_async import AsyncJob, AsyncQueue
from .errors import EveError, LeaseAgeExceeded, NotLeaseHolder, StaleFence
from .tally import Backoff, Tally

log = logging.getLogger("eve_queue.worker")

AsyncHandler: TypeAlias = Callable[["AsyncLeasedJob"], Handled]


class AsyncLeasedJob(AsyncJob):
    """A job of a worker: its lease is kept, and its loss is told."""

    def __init__(self, queue: AsyncQueue, answer: AcquisitionAnswer) -> None:
        super().__init__(queue, answer)
        self.lost: EveError | None = None
        self.renew_at: float = 0.0

    def check(self) -> None:
        """Raises the refusal by which the lease was lost, if it was."""
        if self.lost is not None:
            raise self.lost


class AsyncWorker:
    """A loop around a handler.

    `worker`: the name that the history shows. `classes`, `pool`, `ttl`: as for eve_acquire.
    `batch`: how many items one turn leases; they are handled one after the other. `poll`: the
    shortest and the longest wait in seconds when nothing is ready.
    """

    def __init__(
        self,
        queue: AsyncQueue,
        worker: str,
        handler: AsyncHandler,
        *,
        classes: Sequence[str] | None = None,
        pool: str | None = None,
        ttl: timedelta | str | None = None,
        batch: int = 1,
        poll: tuple[float, float] = (0.05, 5.0),
    ) -> None:
        if not queue.owns_transactions:
            raise TypeError("a worker commits: give its queue a DSN or a pool, not a connection")
        self.queue = queue
        self.worker = worker
        self.handler = handler
        self.classes = classes
        self.pool = pool
        self.ttl = ttl
        self.batch = batch
        self.tally = Tally()
        self._backoff = Backoff(*poll)
        self._stop = Event()
        self._idle = Event()
        self._held: dict[int, AsyncLeasedJob] = {}
        self._skew = timedelta(0)

    def stop(self) -> None:
        """Take nothing new; what is in hand is finished first."""
        self._stop.set()

    async def run(self, *, until_empty: bool = False, catch_signals: bool = True) -> Tally:
        """Work until `stop`, SIGTERM or SIGINT; with `until_empty`, until nothing is ready and
        nothing is known to become ready by itself. A second signal gives the item back and ends.
        """
        if catch_signals:
            with signals(self.stop):
                return await self._run(until_empty)
        return await self._run(until_empty)

    async def _run(self, until_empty: bool) -> Tally:
        self._idle = Event()
        async with self.queue.twin() as beside:
            self._skew = await _skew(beside)
            keeper = Background(lambda: self._keep(beside), f"eve renews for {self.worker}")
            try:
                await self._loop(until_empty)
            finally:
                self._idle.set()
                await keeper.join()
        return self.tally

    async def _loop(self, until_empty: bool) -> None:
        finished: list[AsyncLeasedJob] = []
        while True:
            if self._stop.is_set():
                await self._finish(finished)
                return
            try:
                rows = await self._turn(finished)
            except psycopg.OperationalError as lost:
                # The same finish repeated gives the first answer, so it is safe to ask again.
                log.warning("%s: %s", self.worker, lost)
                await self._stop.wait(self._backoff.seconds())
                continue
            except psycopg.DataError:
                if not finished:
                    raise
                # One result that the queue does not take spoils no other.
                await self._finish_each(finished)
                finished = []
                continue
            jobs = self._told(rows, finished)
            finished = []
            if not jobs:
                last = rows[-1]
                if until_empty and last.refusal is None and last.next_at is None:
                    return
                await self._stop.wait(
                    self._backoff.seconds(
                        next_at=last.next_at, retry_after=last.retry_after, skew=self._skew
                    )
                )
                continue
            self._backoff.reset()
            finished = await self._handle_all(jobs)

    async def _turn(self, finished: Sequence[AsyncLeasedJob]) -> list[TurnAnswer]:
        return await self.queue.turn(
            self.worker,
            items=[job.item for job in finished],
            tokens=[job.token for job in finished],
            results=[job.result for job in finished],
            classes=self.classes,
            pool=self.pool,
            ttl=self.ttl,
            max_items=self.batch,
        )

    def _told(
        self, rows: Sequence[TurnAnswer], finished: Sequence[AsyncLeasedJob]
    ) -> list[AsyncLeasedJob]:
        """Counts the finishes, and gives the jobs of the acquisition."""
        jobs: list[AsyncLeasedJob] = []
        for row in rows:
            if row.part == "finish":
                self.tally.finish(row)
                if not row.accepted:
                    log.warning("%s: item %s refused: %s", self.worker, row.item, row.refusal)
            elif row.granted:
                jobs.append(AsyncLeasedJob(self.queue, self.queue.job(row).answer))
            elif row.refusal is not None:
                self.tally.refuse(row.refusal)
        for job in finished:
            self._held.pop(job.item, None)
        for job in jobs:
            self._schedule(job)
            self._held[job.item] = job
        return jobs

    async def _handle_all(self, jobs: Sequence[AsyncLeasedJob]) -> list[AsyncLeasedJob]:
        """Hands each job to the handler; gives those that the next turn completes."""
        done: list[AsyncLeasedJob] = []
        for place, job in enumerate(jobs):
            if self._stop.is_set():
                await self._give_back(jobs[place:], "the worker stops")
                break
            try:
                job.result = encoded(await self.handler(job))
            except Interrupted:
                await self._finish(done)
                await self._give_back(jobs[place:], "the worker was interrupted")
                raise
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
                await self._fail(job, error)
                continue
            if job.finished is None:
                done.append(job)
            else:
                self._count(job)
        return done

    def _count(self, job: AsyncLeasedJob) -> None:
        """A job that its handler finished by itself."""
        self._held.pop(job.item, None)
        phase = job.finished.phase if job.finished else None
        if phase in ("verified", "completed", "reported"):
            self.tally.done += 1
        else:
            self.tally.returned += 1

    async def _fail(self, job: AsyncLeasedJob, error: Exception) -> None:
        self._held.pop(job.item, None)
        if job.finished is not None:
            log.warning("%s: item %s raised after its finish: %s", self.worker, job.item, error)
            self._count(job)
            return
        log.info("%s: item %s failed: %s", self.worker, job.item, error)
        try:
            await job.fail(error)
            self.tally.failed += 1
        except EveError as refusal:
            self.tally.refused += 1
            self.tally.refuse(refusal.code)
            log.warning("%s: item %s refused: %s", self.worker, job.item, refusal.code)
        except psycopg.Error as lost:
            # The lease lapses and the item comes back.
            log.warning("%s: failure of item %s not reported: %s", self.worker, job.item, lost)

    async def _finish(self, jobs: Sequence[AsyncLeasedJob]) -> None:
        """Completes without taking the next."""
        if not jobs:
            return
        answers = await self.queue.complete_batch(
            [job.item for job in jobs],
            [job.token for job in jobs],
            results=[job.result for job in jobs],
        )
        for job, answer in zip(jobs, answers, strict=True):
            self._held.pop(job.item, None)
            self.tally.finish(answer)

    async def _finish_each(self, jobs: Sequence[AsyncLeasedJob]) -> None:
        for job in jobs:
            try:
                self.tally.finish(await job.complete(job.result))
                self._held.pop(job.item, None)
            except psycopg.DataError as error:
                await self._fail(job, error)
            except EveError as refusal:
                self._held.pop(job.item, None)
                self.tally.refused += 1
                self.tally.refuse(refusal.code)

    async def _give_back(self, jobs: Sequence[AsyncLeasedJob], reason: str) -> None:
        for job in jobs:
            self._held.pop(job.item, None)
            if job.finished is not None:
                continue
            try:
                await job.return_(reason)
                self.tally.returned += 1
            except psycopg.Error as lost:
                log.warning("%s: item %s not returned: %s", self.worker, job.item, lost)

    def _now(self) -> float:
        """Seconds on the server's clock."""
        return (datetime.now(UTC) + self._skew).timestamp()

    def _schedule(self, job: AsyncLeasedJob) -> None:
        """When to renew: at a third of what is left of the lease."""
        until = job.expires_at.timestamp() if job.expires_at else self._now()
        job.renew_at = self._now() + max(0.05, (until - self._now()) / 3)

    async def _keep(self, beside: AsyncQueue) -> None:
        """Renews the leases in hand until the worker is done."""
        while not self._idle.is_set():
            held = [job for job in list(self._held.values()) if job.lost is None]
            now = self._now()
            for job in held:
                if job.renew_at <= now:
                    await self._renew(beside, job)
            due = [job.renew_at - self._now() for job in held]
            await self._idle.wait(max(0.01, min([0.25, *due])))

    async def _renew(self, beside: AsyncQueue, job: AsyncLeasedJob) -> None:
        try:
            try:
                told = await beside.renew(*job.lease, ttl=self.ttl)
            except LeaseAgeExceeded:
                told = await beside.renew(*job.lease)
            job.expires_at = told.expires_at
            job.cancel_requested = bool(told.cancel_requested)
        except (StaleFence, NotLeaseHolder) as refusal:
            # A finish on its way gives the same refusal, and then nothing was lost.
            if job.finished is None and self._held.get(job.item) is job:
                job.lost = refusal
                log.warning("%s: lost item %s: %s", self.worker, job.item, refusal.code)
        except psycopg.Error as unreachable:
            log.warning("%s: item %s not renewed: %s", self.worker, job.item, unreachable)
        self._schedule(job)


async def _skew(queue: AsyncQueue) -> timedelta:
    """How much the server's clock is ahead of ours."""
    async with queue.lent() as connection:
        before = datetime.now(UTC)
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute("select pg_catalog.clock_timestamp()")
            ((there,),) = await cursor.fetchall()
        after = datetime.now(UTC)
    skew: timedelta = there - before - (after - before) / 2
    return timedelta(0) if abs(skew) < timedelta(seconds=0.05) else skew
