"""A queue from Python. This module is the source of `client`.

    async with AsyncQueue("dbname=app", "mail") as queue:
        await queue.submit({"to": "ada"}, work_id="welcome-1")
        async with await queue.acquire("w1") as job:
            if job:
                job.result = await send(job.payload)

`AsyncQueue` takes a connection, a pool or a DSN. A connection of the caller is never committed and
never rolled back here: submit in the transaction of one's own writes, and both stand or fall
together. With a pool or a DSN each call is a transaction of its own, made again when the server
says 40001 or 40P01.

A lease exists once the transaction that acquired it has committed. On a connection of the caller
that is the caller's commit: until then nobody else sees the lease, and nothing outside the database
may be done under it.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from . import calls
from ._wait_async import Interrupted, Lock, sleep
from .answer import Json, Lease
from .answers import (
    AcquisitionAnswer,
    ActAnswer,
    AdmissionAnswer,
    FinishAnswer,
    LeaseAnswer,
    TurnAnswer,
)
from .call import Call, encoded
from .errors import EveError
from .verbs_async import AsyncVerbs

R = TypeVar("R")

ATTEMPTS = 8  # of one call in a transaction of our own, before 40001 or 40P01 is the caller's
_ERROR_CHARACTERS = 16_000  # the queue takes 64 KiB


class AsyncPool(Protocol):
    """What lends connections, such as psycopg_pool.AsyncConnectionPool."""

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]: ...


AsyncSource: TypeAlias = "psycopg.AsyncConnection[Any] | AsyncPool | str"


async def execute(connection: psycopg.AsyncConnection[Any], call: Call[R]) -> R:
    """Makes one call on a connection, in its transaction, and neither commits nor rolls back."""
    query, values = call.pyformat()
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query, values)
        return call.result(await cursor.fetchall())


class AsyncQueue(AsyncVerbs):
    """One queue, seen through a connection of the caller, a pool, or a DSN ("" reads PGHOST …).

    Methods are the functions of the queue, arguments named as in SQL. `submit` raises NotAdmitted
    where SQL would return REJECT or EXPIRE, unless must_admit is False. Refusals that SQL raises
    are raised as classes of `errors`, and other errors as psycopg's own.
    """

    def __init__(self, source: AsyncSource, name: str) -> None:
        self.source = source
        self.name = name
        self._opened: psycopg.AsyncConnection[Any] | None = None
        self._opening = Lock()

    @property
    def owns_transactions(self) -> bool:
        """Whether each call is a transaction of its own: not so on a connection of the caller."""
        return not isinstance(self.source, psycopg.AsyncConnection)

    async def call(self, call: Call[R]) -> R:
        """Makes any call of `calls`: `await queue.call(calls.acquire(queue.name, "w1"))`."""
        if isinstance(self.source, psycopg.AsyncConnection):
            return await execute(self.source, call)
        for attempt in range(1, ATTEMPTS):
            try:
                async with self.lent() as connection:
                    return await execute(connection, call)
            except (SerializationFailure, DeadlockDetected):
                await sleep(random.uniform(0, 0.005 * 2**attempt))
        async with self.lent() as connection:
            return await execute(connection, call)

    async def acquire(
        self,
        worker: str,
        *,
        item: int | None = None,
        classes: Sequence[str] | None = None,
        pool: str | None = None,
        ttl: timedelta | str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncJob:
        """Lease the next ready item, or the one named. A job is false when there was none.

        `async with await queue.acquire("w1") as job:` completes it with `job.result` at the end,
        fails it when the block raises, and gives it back when the block is interrupted.
        """
        answers = await self.call(
            calls.acquire(
                self.name,
                worker,
                item=item,
                classes=classes,
                pool=pool,
                ttl=ttl,
                idempotency_key=idempotency_key,
            )
        )
        return AsyncJob(self, answers[0])

    def job(self, answer: AcquisitionAnswer | TurnAnswer) -> AsyncJob:
        """A job from a row of eve_acquire or eve_turn."""
        if isinstance(answer, TurnAnswer):
            answer = AcquisitionAnswer(
                **{f.name: getattr(answer, f.name) for f in fields(AcquisitionAnswer)}
            )
        return AsyncJob(self, answer)

    def twin(self) -> AsyncQueue:
        """The same queue with a connection of its own; the same pool where there is one."""
        return AsyncQueue(self.source, self.name)

    async def close(self) -> None:
        """Closes the connection that was opened from a DSN; others belong to the caller."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection of the DSN or the pool, in which one call is one transaction."""
        if isinstance(self.source, str):
            yield await self._open(self.source)
        elif isinstance(self.source, psycopg.AsyncConnection):
            raise TypeError("a connection of the caller is not lent")
        else:
            async with self.source.connection() as connection, connection.transaction():
                yield connection

    async def _open(self, dsn: str) -> psycopg.AsyncConnection[Any]:
        async with self._opening:
            if self._opened is None or self._opened.closed:
                # Without prepared statements it works behind a pooler of transactions, too.
                self._opened = await psycopg.AsyncConnection.connect(
                    dsn, autocommit=True, prepare_threshold=None, fallback_application_name="eve"
                )
            return self._opened


class AsyncJob:
    """One acquisition: false when nothing was leased, else the item, its lease and its finish.

    `result`, `evidence`: what the block leaves for the completion. `finished`: the answer of the
    call that ended the lease. `cancel_requested`: as the last call under the lease told.
    """

    def __init__(self, queue: AsyncQueue, answer: AcquisitionAnswer) -> None:
        self.queue = queue
        self.answer = answer
        self.result: Json = None
        self.evidence: Json = None
        self.finished: FinishAnswer | None = None
        self.expires_at: datetime | None = answer.expires_at
        self.cancel_requested: bool = bool(answer.cancel_requested)

    def __bool__(self) -> bool:
        return self.answer.granted

    def __repr__(self) -> str:
        told = f"{self.lease}" if self else self.answer.refusal or "nothing ready"
        return f"<{type(self).__name__} {self.queue.name}: {told}>"

    @property
    def lease(self) -> Lease:
        """Item and token. Raises LookupError when nothing was leased."""
        if self.answer.item is None or self.answer.token is None:
            raise LookupError(self.answer.refusal or "nothing was leased")
        return Lease(self.answer.item, self.answer.token)

    @property
    def item(self) -> int:
        return self.lease.item

    @property
    def token(self) -> int:
        return self.lease.token

    @property
    def work_id(self) -> str:
        return self.answer.work_id or f"~{self.item}"

    @property
    def payload(self) -> Any:
        return self.answer.payload

    @property
    def checkpoint(self) -> Any:
        """What an earlier holder left with its last renewal or return."""
        return self.answer.checkpoint

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.answer.attempt or 0

    def raise_for_refusal(self) -> Self:
        """Itself, or the refusal of the acquisition as its exception."""
        self.answer.raise_for_refusal()
        return self

    async def renew(
        self, ttl: timedelta | str | None = None, *, progress: Json = None, checkpoint: Json = None
    ) -> LeaseAnswer:
        """Extend the lease; progress and checkpoint travel with it. Raises StaleFence and kin."""
        told = await self.queue.renew(
            *self.lease, ttl=ttl, progress=progress, checkpoint=checkpoint
        )
        self.expires_at = told.expires_at
        self.cancel_requested = bool(told.cancel_requested)
        return told

    async def progress(self, progress: Json, *, checkpoint: Json = None) -> LeaseAnswer:
        """Tell how far the work is; renews the lease."""
        return await self.renew(progress=progress, checkpoint=checkpoint)

    async def fence(self, connection: psycopg.AsyncConnection[Any]) -> LeaseAnswer:
        """Guard the writes of the caller's transaction by this lease: no end passes before its
        commit. Raises StaleFence or NotLeaseHolder, and then the transaction must not commit.
        """
        return await execute(connection, calls.fence(self.queue.name, *self.lease))

    async def complete(self, result: Json = None, *, evidence: Json = None) -> FinishAnswer:
        """Complete it now; the end of the block then does nothing."""
        self.finished = await self.queue.complete(*self.lease, result=result, evidence=evidence)
        return self.finished

    async def fail(
        self, error: str | BaseException = "failed", *, disposition: str | None = None,
        detail: Json = None,
    ) -> FinishAnswer:  # fmt: skip
        """Report a failure now: retried, uncertain or quarantined as the queue decides."""
        self.finished = await self.queue.fail(
            *self.lease, error=error_text(error), disposition=disposition, detail=detail
        )
        return self.finished

    async def return_(
        self,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        decision: int | None = None,
        after: Sequence[str] | None = None,
        reconcile: bool | None = None,
        checkpoint: Json = None,
    ) -> FinishAnswer:
        """Give it back: ready at once, or waiting for what is named. Costs no attempt as long as
        no effect was started.
        """
        self.finished = await self.queue.return_(
            *self.lease,
            reason=reason,
            until=until,
            decision=decision,
            after=after,
            reconcile=reconcile,
            checkpoint=checkpoint,
        )
        return self.finished

    async def start_effect(
        self, effect_identity: str | None = None, *, evidence: Json = None
    ) -> ActAnswer:
        """Record that an outside effect is about to start: from here on a loss is uncertain."""
        return await self.queue.start_effect(
            *self.lease, effect_identity=effect_identity, evidence=evidence
        )

    async def observe_effect(
        self, effect_identity: str | None = None, *, evidence: Json = None,
        observed_at: datetime | None = None,
    ) -> ActAnswer:  # fmt: skip
        """Record that an outside effect was observed."""
        return await self.queue.observe_effect(
            self.item,
            effect_identity=effect_identity,
            evidence=evidence,
            observed_at=observed_at,
            token=self.token,
        )

    async def submit(self, payload: Json = None, **arguments: Any) -> AdmissionAnswer:
        """Submit a child under this lease; the arguments are those of `AsyncQueue.submit`."""
        return await self.queue.submit(payload, under=self.lease, **arguments)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if not self or self.finished is not None:
            return
        if error is None:
            try:
                await self.complete(encoded(self.result), evidence=encoded(self.evidence))
            except (TypeError, ValueError, psycopg.DataError) as unfit:
                if not self._in_failed_transaction():
                    await self._give_up(unfit)
                raise
        elif isinstance(error, EveError) and error.retry == "stop":
            error.add_note(f"item {self.item} was not reported as failed: its lease is lost")
        elif self._in_failed_transaction():
            error.add_note(
                f"item {self.item} was not reported as failed: the caller's transaction has failed,"
                " and what it acquired ends with its rollback"
            )
        else:
            await self._give_up(error)

    async def _give_up(self, error: BaseException) -> None:
        """Tells the queue what the block raised; what goes wrong here becomes a note of it."""
        try:
            if isinstance(error, Interrupted):
                await self.return_("interrupted")
            else:
                await self.fail(error)
        except psycopg.Error as also:
            error.add_note(f"item {self.item} was not reported as failed: {also}")

    def _in_failed_transaction(self) -> bool:
        source = self.queue.source
        return (
            isinstance(source, psycopg.AsyncConnection)
            and source.info.transaction_status == TransactionStatus.INERROR
        )


def error_text(error: str | BaseException) -> str:
    """An error as text that the queue can store: named, of bounded length, without NUL."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    whole = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return whole[:_ERROR_CHARACTERS] or "failed"
