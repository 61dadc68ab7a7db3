"""Client of eve, a governed work queue inside PostgreSQL.

    from eve_queue import Queue

    with Queue("dbname=app", "mail") as queue:
        queue.submit({"to": "ada"}, work_id="welcome-1")
        with queue.acquire("w1") as job:
            if job:
                job.result = {"sent": job.payload["to"]}

`Queue` and `AsyncQueue` are clients, `Worker` and `AsyncWorker` loops, `calls` the same functions
for any other driver, `errors` the refusals.
"""

from __future__ import annotations

import logging

from . import answers, calls, errors
from .answer import Answer, Json, JsonText, Lease
from .call import Call
from .client import Job, Queue, execute
from .client_async import AsyncJob, AsyncQueue
from .errors import (
    EveError,
    FleetHalted,
    IdempotencyConflict,
    LeaseAgeExceeded,
    NotAdmitted,
    NotLeaseHolder,
    StaleFence,
    TerminalStateNotOwned,
    from_driver,
)
from .tally import Tally
from .worker import Worker
from .worker_async import AsyncWorker

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "Answer",
    "AsyncJob",
    "AsyncQueue",
    "AsyncWorker",
    "Call",
    "EveError",
    "FleetHalted",
    "IdempotencyConflict",
    "Job",
    "Json",
    "JsonText",
    "Lease",
    "LeaseAgeExceeded",
    "NotAdmitted",
    "NotLeaseHolder",
    "Queue",
    "StaleFence",
    "Tally",
    "TerminalStateNotOwned",
    "Worker",
    "answers",
    "calls",
    "errors",
    "execute",
    "from_driver",
]
