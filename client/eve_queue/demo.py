"""A backlog drained before your eyes: python -m eve_queue.demo [--backlog PATH]

Brings a PostgreSQL of its own, installs eve, imports a backlog, lets a human accept what only a
human may, drains it with three worker processes, loses one of them in the middle of an item,
refuses its late answer, recovers and finishes the item, and audits the ledger.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import calls, embedded, install, load
from .answer import Json
from .answers import ExplainAnswer
from .call import Call
from .client import Queue, execute
from .errors import EveError
from .importers import Backlog, Edge, ImportStopped, Refused, UnknownFormat, bundled, cycles, read
from .importers.model import shown
from .tell import audit_line
from .worker import LeasedJob, Worker

QUEUE = "demo"
CLASS = "demo"
POOL = "cloud"
WORKERS = 3
TTL = "1 s"
PATIENCE = 50.0  # seconds; the demo ends within a minute or says that it did not
SECONDS_AN_ITEM = 0.01
LOST_AT = 5  # the item at which the first worker hangs, where there is enough to do
CAPABILITIES = {
    "demo_operator": ("operator", "auditor"),
    "demo_importer": ("producer", "verifier"),
    "demo_human": ("human",),
    **{f"demo_worker{number}": ("worker",) for number in range(1, WORKERS + 1)},
}


class Failed(Exception):
    """The demo did not show what it should."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m eve_queue.demo", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--backlog", default=os.environ.get("BACKLOG") or None, metavar="PATH")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--lost-at", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return work(options.worker, options.lost_at)
    try:
        backlog = read(options.backlog) if options.backlog else bundled()
    except (OSError, UnknownFormat, Refused, ImportStopped) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and clean up
    try:
        with embedded.running() as server:
            return Demo(server, backlog, console).run()
    except (embedded.NoServer, install.NotPossible, Failed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


# --- a worker process: tells on stdout what it does, one JSON object a line


def work(name: str, lost_at: int) -> int:
    """Works until SIGTERM; at the item with this number it waits to be stopped by the demo."""

    def tell(event: str, job: LeasedJob, **more: Json) -> None:
        told = {"event": event, "worker": name, "item": job.item, "work_id": job.work_id, **more}
        print(json.dumps(told), flush=True)

    taken = 0

    def handle(job: LeasedJob) -> Json:
        nonlocal taken
        taken += 1
        if taken == lost_at:
            tell("holding", job, token=job.token)
            until_stopped()
            try:
                job.complete({"by": name})
            except EveError as refusal:
                tell("refused", job, sqlstate=refusal.sqlstate, code=refusal.code)
            time.sleep(PATIENCE)  # the demo ends this process here
        time.sleep(SECONDS_AN_ITEM)
        digest = hashlib.sha256(json.dumps(job.payload, sort_keys=True).encode()).hexdigest()
        job.complete({"by": name, "sha256": digest})
        tell("done", job, attempt=job.attempt)
        return None

    logging.getLogger("eve_queue").setLevel(logging.CRITICAL)  # the demo tells it better
    with Queue(os.environ["EVE_DSN"], QUEUE) as queue:
        Worker(queue, name, handle, pool=POOL, ttl=TTL, poll=(0.02, 0.25)).run()
    return 0


def until_stopped() -> None:
    """Waits for SIGSTOP and SIGCONT, which show as a gap in the time."""
    began = last = time.monotonic()
    while last - began < PATIENCE:
        time.sleep(0.02)
        last, before = time.monotonic(), last
        if last - before > 0.5:
            return


@dataclass
class Process:
    """A worker process, and what it told."""

    name: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, name: str, dsn: str, lost_at: int, on_event: Callable[[Event], None]) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-m", "eve_queue.demo", "--worker", name, "--lost-at", str(lost_at)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "EVE_DSN": dsn},
        )  # fmt: skip
        started = cls(name, process)
        threading.Thread(target=started._listen, args=[on_event], daemon=True).start()
        return started

    def _listen(self, on_event: Callable[[Event], None]) -> None:
        for line in self.process.stdout or ():
            on_event(json.loads(line))

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


Event = Mapping[str, Any]


@dataclass
class Demo:
    """One run, step by step."""

    server: embedded.Server
    backlog: Backlog
    console: Console
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)  # work ids, as their completions came in
    events: dict[str, Event] = field(default_factory=dict)  # holding, refused
    lost: Process | None = None
    refused: bool = False

    def run(self) -> int:
        self.say(f"PostgreSQL {self.server.version}, a cluster of its own, fsync on")
        self.set_up()
        with ExitStack() as stack:
            self.roles = {
                role: stack.enter_context(psycopg.connect(self.server.dsn(role), autocommit=True))
                for role in CAPABILITIES
            }
            self.make_queue()
            loaded = self.take_over()
            self.items = loaded.items()
            ready = self.count("ready")
            with self.workers(ready):
                self.drain(ready)
                self.waive()
                self.approve()
            self.table()
            audit = self.as_role("demo_operator", calls.audit(QUEUE))[0]
        self.say(f"{time.monotonic() - self.began:.1f} s in all")
        self.console.print(audit_line([audit]))
        return 0 if audit.clean else 7

    # --- the stage

    def set_up(self) -> None:
        began = time.monotonic()
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
            install.install(connection, "plain")
            for role, capabilities in CAPABILITIES.items():
                doors = ", ".join(f"eve_{capability}" for capability in capabilities)
                connection.execute(f"create role {role} login in role {doors}".encode())
        self.say(f"eve installed in {time.monotonic() - began:.1f} s; {len(CAPABILITIES)} logins")

    def make_queue(self) -> None:
        operator = "demo_operator"
        self.as_role(operator, calls.create_queue(QUEUE, durability="required"))
        self.as_role(
            operator,
            calls.define_class(
                QUEUE, CLASS, preset="imported", replay_class="safe", policy={"ttl_floor": TTL}
            ),
        )
        for role, capabilities in CAPABILITIES.items():
            for capability in capabilities:
                self.as_role(operator, calls.grant_access(QUEUE, role, capability))
        self.say(
            f"queue {QUEUE}, durability required; class {CLASS} is a revision for this demo:"
            f" leases from {TTL} (the contract's floor is 60 s)"
        )

    def take_over(self) -> load.Loaded:
        importer = self.roles["demo_importer"]
        decision = None
        if load.finished(self.backlog):
            decision = load.propose_import(importer, QUEUE, self.backlog)
            self.as_role("demo_human", calls.accept(QUEUE, decision))
            self.say(f"human accepted import decision {decision}: work finished elsewhere")
        loaded = load.load(importer, QUEUE, self.backlog, class_=CLASS, decision=decision)
        again = load.load(importer, QUEUE, self.backlog, class_=CLASS, decision=decision)
        self.console.print()
        self.console.print(str(loaded), markup=False)
        self.say(f"imported twice, the second time {again.replayed} of {len(again.lines)} replayed")
        told = self.as_role("demo_human", calls.approve_slots(QUEUE, POOL, WORKERS))
        self.say(f"human approved {WORKERS} slots in pool {POOL}: decision {told.decision}")
        return loaded

    @contextmanager
    def workers(self, ready: int) -> Iterator[None]:
        """Three processes; the first will hang, and is alone at first where work is scarce."""
        names = list(CAPABILITIES)[-WORKERS:]
        scarce = ready < LOST_AT * WORKERS * 2
        self.started: list[Process] = []
        try:
            for number, role in enumerate(names, 1):
                lost_at = 0 if number > 1 else 1 if scarce else LOST_AT
                self.started.append(
                    Process.start(f"w{number}", self.server.dsn(role), lost_at, self.on_event)
                )
                if number == 1 and scarce and ready:
                    self.until(lambda: "holding" in self.events, "a worker has an item")
            self.lost = self.started[0]
            yield
        finally:
            for process in self.started:
                process.end()

    def on_event(self, event: Event) -> None:
        if event["event"] == "done":
            self.done.append(event["work_id"])
        else:
            self.events[event["event"]] = event

    # --- the play

    def drain(self, ready: int | None = None) -> None:
        """Until nothing is ready and nothing runs, with one worker lost on the way."""
        total = sum(task.outcome in ("submit", "hold") for task in self.backlog.tasks)
        if ready is not None:
            self.say(f"drain: {ready} of {total} ready at once, {WORKERS} workers")
        before = len(self.done)
        with self.progress(total) as told:
            scene = self.loss()
            while self.count("ready", "running") > 0 or self.late_answer_due():
                told(len(self.done))
                next(scene, None)
                self.check_time()
                time.sleep(0.05)
            self.until(lambda: len(self.done) >= self.verified_here(), "workers told all")
            told(len(self.done))
        self.say(f"drained {len(self.done)} of {total}{self.waves(self.done[before:])}")
        if len(self.done) > before and not self.refused:
            raise Failed("no worker was lost")

    def late_answer_due(self) -> bool:
        return "holding" in self.events and not self.refused

    def loss(self) -> Iterator[None]:
        """A worker hangs, its lease lapses, another finishes the item; its late answer comes."""
        while "holding" not in self.events or self.lost is None or self.refused:
            yield
        held = self.events["holding"]
        self.lost.signal(signal.SIGSTOP)
        name = shown(held["work_id"])
        self.say(f"{held['worker']} hangs in the middle of {name}, token {held['token']} (SIGSTOP)")
        while held["work_id"] not in self.done:
            yield
        read = self.as_role("demo_operator", calls.item(QUEUE, held["item"]))
        history = self.as_role("demo_operator", calls.history(QUEUE, held["item"]))
        happened = [event.kind for event in history]
        if "lease_expired" not in happened:
            raise Failed(f"{name} was never recovered: {', '.join(happened)}")
        self.say(
            f"its lease lapsed after {TTL}; recovered and finished by another worker,"
            f" token {read.token}: {' '.join(happened)}"
        )
        self.lost.signal(signal.SIGCONT)
        while "refused" not in self.events:
            yield
        told = self.events["refused"]
        self.say(
            f"{told['worker']} wakes up and reports {name} done:"
            f" refused, SQLSTATE {told['sqlstate']} {told['code']}; now killed"
        )
        self.lost.signal(signal.SIGKILL)
        self.refused = True

    def waive(self) -> None:
        """The human opens each cycle by one waiver, and the drain goes on."""
        knots = cycles(self.backlog)
        if not knots:
            return
        for knot in knots:
            item = self.items[knot.path[0]]
            reasons = self.explain(item)
            if "dependency_cycle" not in [reason.code for reason in reasons]:
                raise Failed(f"item {item} is in a cycle, but the queue does not say so")
            arrows = " → ".join(map(shown, (*knot.path, knot.path[0])))
            self.say(f"cycle, as the queue explains it: {arrows}")
        self.say(f"cycles reported: {len(knots)}")
        for knot in knots:
            for edge in knot.waive:
                self.accept_waiver(edge)
        self.drain()

    def accept_waiver(self, edge: Edge) -> None:
        told = self.as_role(
            "demo_human",
            calls.propose(QUEUE, "waiver", item=self.items[edge.work_id], work_id=edge.after),
        )
        self.as_role("demo_human", calls.accept(QUEUE, told.decision or 0))
        self.say(
            f"human waives {shown(edge.work_id)} → {shown(edge.after)}: decision {told.decision}"
        )

    def approve(self) -> None:
        """The human accepts the approvals that held work waits for, and the drain goes on."""
        waiting = [
            (task.work_id, reason)
            for task in self.backlog.tasks
            if task.outcome == "hold" and task.work_id in self.items
            for reason in self.explain(self.items[task.work_id])
            if reason.code == "awaiting_decision"
        ]
        if not waiting:
            return
        for work_id, reason in waiting:
            decision = int(reason.detail["ref"])
            self.as_role("demo_human", calls.accept(QUEUE, decision))
            self.say(
                f"human accepts {shown(work_id)}, held back by its source: decision {decision}"
            )
        self.drain()

    # --- the end

    def waves(self, names: Iterable[str]) -> str:
        """How a drain went: each item one wave after the last of those that it waited for."""
        wave: Counter[str] = Counter()
        tasks = self.backlog.by_id()
        open_work = {t.work_id for t in self.backlog.tasks if t.outcome != "verified"}
        waived = {edge for knot in cycles(self.backlog) for edge in knot.waive}
        earlier = set(self.done) - set(names)
        for name in names:
            waits = [
                after
                for after in tasks[name].after
                if after in open_work - earlier and Edge(name, after) not in waived
            ]
            if early := [after for after in waits if after not in wave]:
                raise Failed(f"{name} was finished before {', '.join(early)}")
            wave[name] = 1 + max((wave[after] for after in waits), default=0)
        sizes = [str(size) for _, size in sorted(Counter(wave.values()).items())]
        return f", waves {' then '.join(sizes)}" if sizes else ""

    def table(self) -> None:
        counts: Counter[str] = Counter()
        for line in self.as_role("demo_operator", calls.stats(QUEUE)):
            counts[line.status] += line.items
        table = Table("status", "items", box=None)
        for status in ("done", "ready", "running", "waiting", "needs_human", "ended"):
            if counts[status]:
                table.add_row(status, str(counts[status]))
        self.console.print()
        self.console.print(table)
        for name in self.stays()[:10]:
            reasons = self.explain(self.items[name])
            because = "; ".join(sorted({reason.because for reason in reasons}))
            self.say(f"{shown(name)} stays: {because}")
        more = len(self.stays()) - 10
        if more > 0:
            self.say(f"and {more} more")

    def stays(self) -> list[str]:
        finished = set(self.done)
        return [
            task.work_id
            for task in self.backlog.tasks
            if task.outcome in ("submit", "hold")
            and task.work_id in self.items
            and task.work_id not in finished
        ]

    # --- small things

    def as_role(self, role: str, call: Call[Any]) -> Any:
        return execute(self.roles[role], call)

    def count(self, *status: str) -> int:
        """Items of these statuses, at one instant."""
        lines = self.as_role("demo_operator", calls.stats(QUEUE))
        return sum(line.items for line in lines if line.status in status)

    def verified_here(self) -> int:
        """Items that workers finished."""
        elsewhere = sum(task.outcome == "verified" for task in self.backlog.tasks)
        return self.count("done") - elsewhere

    def explain(self, item: int) -> list[ExplainAnswer]:
        told: list[ExplainAnswer] = self.as_role("demo_operator", calls.explain(QUEUE, item))
        return told

    def say(self, text: str) -> None:
        self.console.print(f"[{time.monotonic() - self.began:5.1f} s] {text}", markup=False)

    def check_time(self) -> None:
        if time.monotonic() - self.began > PATIENCE:
            raise Failed(f"not done after {PATIENCE:.0f} s")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        while not holds():
            if time.monotonic() - self.began > PATIENCE:
                raise Failed(f"not within {PATIENCE:.0f} s: {what}")
            time.sleep(0.01)

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int], None]]:
        """A bar on a terminal, else a line for each tenth."""
        if self.console.is_terminal:
            columns = (
                TextColumn("         "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            )  # fmt: skip
            with Progress(*columns, console=self.console) as bar:
                task = bar.add_task("drain", total=total)
                yield lambda done: bar.update(task, completed=done)
            return
        step, told = max(1, total // 10), len(self.done) // max(1, total // 10)

        def line(done: int) -> None:
            nonlocal told
            if done // step > told:
                told = done // step
                self.say(f"  {done} of {total} done")

        yield line


if __name__ == "__main__":
    sys.exit(main())
