"""The command line: `eve --help`.

Answers go to stdout, as text for people or with --json as one JSON object a line; what went wrong
goes to stderr. Exit codes are stable:

0 done · 2 wrong usage · 3 refused, ask again later · 4 refused, change the request · 5 refused, a
human has to act · 6 the lease is lost · 7 verification failed · 8 unreachable, or outcome unknown
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import psycopg

from . import calls, classes, forms, importers, load, roles
from . import install as installing
from .answer import Answer, JsonText, Lease
from .answers import BacktestAnswer, FinishAnswer, ItemAnswer
from .call import Call
from .client import Job, Queue, execute
from .importers.model import shown

try:
    import typer

    from .tell import (
        CHANGE,
        HUMAN,
        LATER,
        UNVERIFIED,
        USAGE,
        Fault,
        Out,
        audit_line,
        exit_code,
        page,
        shown_json,
        told,
        when,
    )  # fmt: skip
except ModuleNotFoundError as missing:  # the extra "cli" brings them
    raise SystemExit(f"eve: {missing.name} is missing: pip install 'eve-queue[cli]'") from None

STATUS = ("waiting", "ready", "running", "needs_human", "done", "ended")

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    help="A governed work queue inside PostgreSQL.",
    epilog=" ".join((__doc__ or "").split("stable:")[1].split()),
)

class_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    class_app, name="class", help="The policies of classes: from a file, and as they are."
)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE")]
Dsn = Annotated[
    str,
    typer.Option(
        "--dsn", envvar="EVE_DSN", help="libpq connection string; without it PGHOST and kin."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Key = Annotated[
    str | None, typer.Option("--key", help="Idempotency key: the same call again changes nothing.")
]
LeaseWord = Annotated[str, typer.Argument(metavar="LEASE", help="item.token, as acquire told.")]
Which = Annotated[str, typer.Argument(metavar="ITEM", help="Item number, or work_id.")]
ByWorkId = Annotated[bool, typer.Option("--work-id", help="ITEM is a work_id, even if a number.")]


def promise(function: str) -> str:
    """The first paragraph of a function's COMMENT: help is written once, in SQL."""
    return (inspect.getdoc(calls.FUNCTIONS[function]) or "").split("\n\n")[0].replace("\n", " ")


# --- set up


@app.command()
def install(
    dsn: Dsn = "",
    extension: Annotated[bool, typer.Option("--extension", help="CREATE EXTENSION eve.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="The SQL of this package.")] = False,
    as_json: AsJson = False,
) -> None:
    """Install eve in the database: the extension where the server offers it, else plain SQL."""
    if extension and plain:
        raise typer.BadParameter("--extension and --plain exclude each other")
    road: installing.Road | None = "extension" if extension else "plain" if plain else None
    with told(as_json) as out, psycopg.connect(dsn, autocommit=True) as connection:
        done = installing.install(connection, road)
        out.row({"installed": done is not None, "road": done})
        out.say(f"eve installed ({done})" if done else "eve is there already")
        if done:
            out.say(f"{connection.info.user} is operator, producer, worker and auditor.")
            out.say("Nobody is human yet. To make somebody human:")
            out.say("  grant eve_human to NAME;  and in each queue:  eve grant QUEUE NAME human")


@app.command("create-queue", help=promise("eve_create_queue"))
def create_queue(
    queue: QueueName,
    replay_class: Annotated[
        str | None,
        typer.Option(help="safe, destination_protected, reconcilable, non_repeatable or unknown."),
    ] = None,
    durability: Annotated[str | None, typer.Option(help="required, platform or any.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        out.row(q.create_queue(replay_class=replay_class, durability=durability))
        out.say(f"queue {shown(queue)} created")
        if replay_class is None:
            out.say("It has no class yet: submit says which line to run.")


@app.command(help=promise("eve_grant_access"))
def grant(
    queue: QueueName,
    role: str,
    capability: Annotated[str, typer.Argument(help=", ".join(roles.CAPABILITIES))],
    principal: Annotated[
        str | None, typer.Option(help="The name under which rotating logins are one.")
    ] = None,
    key: Key = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        out.row(q.grant_access(role, capability, principal=principal, idempotency_key=key))
        out.say(f"{shown(role)} is {capability} of queue {shown(queue)}")
        with q.lent() as connection:
            mine = [
                s
                for s in roles.standings(connection)
                if (s.login, s.capability) == (role, capability)
            ]
        if mine and not mine[0].holds:
            out.say(
                f'It counts once the role has the outer door: grant eve_{capability} to "{role}"'
            )


@app.command("roles")
def show_roles(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Which login has which capability, who can become human, and who has access to a queue."""
    with told(as_json) as out, psycopg.connect(dsn, autocommit=True) as connection:
        found = roles.standings(connection)
        by_login: dict[str, dict[str, str]] = {}
        for standing in found:
            by_login.setdefault(standing.login, {})[standing.capability] = standing.word
            if standing.word:
                out.row(
                    {
                        "login": standing.login,
                        "capability": standing.capability,
                        "holds": standing.holds,
                        "through": list(standing.through),
                        "grants": standing.grants,
                    }
                )
        out.table(
            ("login", *roles.CAPABILITIES),
            (
                (login, *(words[capability] for capability in roles.CAPABILITIES))
                for login, words in by_login.items()
                if any(words.values())
            ),
        )
        humans = [s for s in found if s.capability == "human" and s.word]
        out.say("")
        out.say(
            "can become human: " + (", ".join(f"{s.login} ({s.word})" for s in humans) or "nobody")
        )
        if queue:
            granted = roles.access(Queue(connection, queue).history(0))
            out.say("")
            out.table(
                ("access to " + shown(queue), *roles.CAPABILITIES),
                (
                    (role, *("yes" if c in granted[role] else "" for c in roles.CAPABILITIES))
                    for role in sorted(granted)
                    if granted[role]
                ),
            )
            for role in sorted(granted):
                out.row({"queue": queue, "role": role, "access": sorted(granted[role])})


@app.command("approve-slots", help=promise("eve_approve_slots"))
def approve_slots(
    queue: QueueName, pool: str, slots: int, key: Key = None, dsn: Dsn = "", as_json: AsJson = False
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        answer = q.approve_slots(pool, slots, idempotency_key=key)
        out.row(answer)
        out.say(f"pool {shown(pool)} has {slots} slots under decision {answer.decision}")


@app.command(help=promise("eve_accept"))
def accept(
    queue: QueueName, decision: int, key: Key = None, dsn: Dsn = "", as_json: AsJson = False
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        out.row(q.accept(decision, idempotency_key=key))
        out.say(f"decision {decision} accepted")


@app.command(help=promise("eve_decline"))
def decline(
    queue: QueueName, decision: int, key: Key = None, dsn: Dsn = "", as_json: AsJson = False
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        out.row(q.decline(decision, idempotency_key=key))
        out.say(f"decision {decision} declined")


# --- classes


@class_app.command("apply")
def class_apply(
    file: Annotated[Path, typer.Argument(help="TOML with tables [class.NAME].")],
    queue: Annotated[str | None, typer.Option(help="Instead of the queue in the file.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply without asking.")] = False,
    since: Annotated[
        str | None,
        typer.Option(help="Backtest what was submitted since: 7d, 12h, 30m, or an instant."),
    ] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Show what a file of class policies would change, then define the classes that change, all
    or none. With --since also what the new policies would have decided of recorded submissions.
    With --json nothing is asked: without --yes nothing is applied.
    """
    with told(as_json) as out:
        from_when = moment(since)
        try:
            named_queue, wanted = classes.read(file)
        except classes.Unreadable as error:
            raise Fault(str(error), USAGE) from None
        name = queue or named_queue
        if name is None:
            raise Fault(f"{file}: names no queue", USAGE, 'Write queue = "NAME", or pass --queue.')
        with psycopg.connect(dsn, autocommit=True) as connection:
            known = classes.revisions(execute(connection, calls.history(name, 0)))
            plan = [classes.difference(want, known.get(want.name, ())) for want in wanted]
            changes = [each for each in plan if each]
            defined = _define(connection, name, file, changes, keep=False)
            for each in plan:
                _show_difference(out, each, defined.get(each.definition.name))
                if each and each.present and from_when:
                    _show_backtest(out, connection, name, each, from_when)
            if not changes:
                out.say("nothing to apply")
                return
            if not yes:
                if as_json:
                    return
                if not _agreed(len(changes)):
                    raise Fault("not applied", HUMAN)
            for made in _define(connection, name, file, changes, keep=True).values():
                out.row({"class": made.name, "applied": True, "revision": made.revision})
                out.say(f"class {shown(made.name)} has revision {made.revision}")


def _define(
    connection: psycopg.Connection[Any],
    queue: str,
    file: Path,
    changes: Sequence[classes.Difference],
    *,
    keep: bool,
) -> dict[str, classes.Revision]:
    """Defines the classes in one transaction; without keep it is only tried, and rolled back."""
    with connection.transaction(force_rollback=not keep):
        for each in changes:
            want = each.definition
            try:
                answer = execute(
                    connection,
                    calls.define_class(
                        queue, want.name, preset=want.preset, policy=dict(want.policy)
                    ),
                )
            except psycopg.Error as error:
                if (error.sqlstate or "")[:2] != "22":
                    raise
                raise Fault(
                    f"{file}: [class.{want.name}]: {error.diag.message_primary}",
                    exit_code(error),
                    error.diag.message_hint or "",
                ) from None
            before = each.present.revision if each.present else 0
            if answer.detail["revision"] != before + 1:
                raise Fault(f"class {want.name} was changed meanwhile", LATER)
        if not changes:
            return {}
        made = classes.revisions(execute(connection, calls.history(queue, 0)))
        return {each.definition.name: made[each.definition.name][-1] for each in changes}


def _show_difference(out: Out, each: classes.Difference, made: classes.Revision | None) -> None:
    name = shown(each.definition.name)
    out.row(
        {
            "class": each.definition.name,
            "revision": each.present.revision if each.present else None,
            "unchanged": not each,
            "preset": each.definition.preset,
            "added": each.added,
            "changed": {key: list(pair) for key, pair in each.changed.items()},
            "removed": each.removed,
            "answers": made.answers if made else each.present and each.present.answers,
            "unanswered": made.unanswered if made else each.present and each.present.unanswered,
        }
    )
    if made is None:
        out.say(f"class {name}: unchanged, revision {each.present and each.present.revision}")
        return
    out.say(f"class {name}: revision {made.revision}, preset {shown(made.preset)}")
    if each.preset:
        out.say(f"  ~ preset {' → '.join(map(shown, each.preset))}")
    for key, value in each.added.items():
        out.say(f"  + {shown(key)} {shown(shown_json(value))}")
    for key, (was, now) in each.changed.items():
        out.say(f"  ~ {shown(key)} {shown(shown_json(was))} → {shown(shown_json(now))}")
    for key, value in each.removed.items():
        out.say(f"  - {shown(key)} {shown(shown_json(value))}")
    answerers: dict[str, list[str]] = {}
    for field, answer in sorted(made.answers.items()):
        answerers.setdefault(answer.get("answered_by", "nobody"), []).append(field)
    for who in sorted(answerers):
        out.say(f"  answered by {who}: {', '.join(answerers[who])}")
    _show_unanswered(out, made)


def _show_unanswered(out: Out, made: classes.Revision) -> None:
    for number, question in sorted(made.unanswered.items(), key=lambda pair: int(pair[0])):
        out.say(f"  unanswered {number}: {question}")


def _show_backtest(
    out: Out,
    connection: psycopg.Connection[Any],
    queue: str,
    each: classes.Difference,
    since: datetime,
) -> None:
    want = each.definition
    *rows, last = execute(
        connection,
        calls.backtest(queue, want.name, policy=dict(want.policy), since=since, preset=want.preset),
    )
    for row in (*rows, last):
        out.row({"class": want.name, "backtest": row.as_dict()})
    told_of = 20
    for row in rows[:told_of]:
        out.say(f"  {_one(row)}")
    if len(rows) > told_of:
        out.say(f"  … and {len(rows) - told_of} more")
    told = last.because
    left_out = f", {told['left_out']} left out" if told["left_out"] else ""
    out.say(
        f"  backtest since {when(since)}: {told['judged']} judged, {told['changed']} would change,"
        f" {told['unjudgeable']} unjudgeable{left_out}"
    )


def _one(row: BacktestAnswer) -> str:
    which = f"item {row.item}" if row.item else f"submission {row.submission}"
    was = " ".join(filter(None, (row.was_decision, row.was_reason)))
    if row.part == "unjudgeable":
        return f"{when(row.at)} {which}: {was}, unjudgeable: {row.because['reason']}"
    would = " ".join(filter(None, (row.would_decision, row.would_reason)))
    return f"{when(row.at)} {which}: {was} → {would}"


def _agreed(number: int) -> bool:
    try:
        return typer.confirm(f"Apply {number} change{'s' if number > 1 else ''}?")
    except typer.Abort:
        raise Fault("nobody answered", USAGE, "Pass --yes to apply without asking.") from None


@class_app.command("show")
def class_show(
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="CLASS")],
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """The fields of a class with who answered them, what is unanswered, and its revisions."""
    with told(as_json) as out, Queue(dsn, queue) as q:
        history = classes.revisions(q.history(0)).get(name)
        if not history:
            raise Fault(f"there is no class {shown(name)}", CHANGE)
        now = history[-1]
        out.row(
            {
                "class": now.name,
                "revision": now.revision,
                "preset": now.preset,
                "policy": now.policy,
                "answers": now.answers,
                "unanswered": now.unanswered,
                "history": [
                    {"revision": r.revision, "at": r.at.isoformat(), "actor": r.actor,
                     "preset": r.preset, "digest": r.digest}
                    for r in history
                ],
            }
        )  # fmt: skip
        out.say(f"class {shown(now.name)}: revision {now.revision}, preset {shown(now.preset)}")
        out.table(
            ("field", "answered by", "with"),
            (
                (
                    field,
                    answer.get("answered_by", "nobody"),
                    ", ".join(
                        [
                            *(
                                f"{k} {shown_json(v)}"
                                for k, v in answer.get("settings", {}).items()
                            ),
                            *([answer["declared"]] if "declared" in answer else []),
                        ]
                    ),
                )
                for field, answer in sorted(now.answers.items())
            ),
        )
        _show_unanswered(out, now)
        out.table(
            ("revision", "at", "by", "preset", "digest"),
            ((str(r.revision), when(r.at), r.actor, r.preset, r.digest[:12]) for r in history),
        )


# --- work


@app.command(help=promise("eve_submit"))
def submit(
    queue: QueueName,
    payload: Annotated[str, typer.Argument(help="JSON; - reads stdin.")] = "{}",
    class_: Annotated[str | None, typer.Option("--class")] = None,
    work_id: Annotated[
        str | None, typer.Option(help="Your own name for it, unique for ever.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(help="A work_id to wait for; may be repeated.")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="0 most urgent to 3.")] = None,
    not_before: Annotated[str | None, typer.Option(help="An instant, ISO 8601 with zone.")] = None,
    deadline: Annotated[str | None, typer.Option(help="An instant, ISO 8601 with zone.")] = None,
    key: Key = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        answer = q.submit(
            json_text(sys.stdin.read() if payload == "-" else payload, "PAYLOAD"),
            class_=class_,
            work_id=work_id,
            after=after or None,
            priority_class=rank,
            not_before=instant(not_before),
            deadline=instant(deadline),
            idempotency_key=key,
        )
        out.row(answer)
        why = f": {answer.reason}" if answer.reason else ""
        out.say(f"{answer.decision}{why}  item {answer.item}  {shown(answer.work_id or '')}")


@app.command(help=promise("eve_acquire"))
def acquire(
    queue: QueueName,
    worker: Annotated[str, typer.Argument(help="A name that the history shows.")],
    item: Annotated[int | None, typer.Option(help="This one instead of the next.")] = None,
    class_: Annotated[list[str] | None, typer.Option("--class", help="May be repeated.")] = None,
    pool: Annotated[str | None, typer.Option()] = None,
    ttl: Annotated[
        str | None, typer.Option(help="How long the lease lasts, such as '90 s'.")
    ] = None,
    key: Key = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        job: Job = q.acquire(
            worker, item=item, classes=class_ or None, pool=pool, ttl=ttl, idempotency_key=key
        )
        out.row(job.answer)
        if job:
            out.say(f"{job.lease}  {shown(job.work_id)}  until {when(job.expires_at)}")
            out.say(shown_json(job.payload))
            return
        job.raise_for_refusal()
        again = f"; ask again at {when(job.answer.next_at)}" if job.answer.next_at else ""
        out.say(f"nothing ready{again}")
        raise typer.Exit(LATER)


@app.command(help=promise("eve_complete"))
def complete(
    queue: QueueName,
    lease: LeaseWord,
    result: Annotated[str | None, typer.Option(help="JSON; - reads stdin.")] = None,
    key: Key = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        text = sys.stdin.read() if result == "-" else result
        value = None if text is None else json_text(text, "--result")
        finish(out, q.complete(*leased(lease), result=value, idempotency_key=key))


@app.command(help=promise("eve_fail"))
def fail(
    queue: QueueName,
    lease: LeaseWord,
    error: Annotated[str, typer.Option(help="What went wrong.")] = "failed",
    disposition: Annotated[str | None, typer.Option(help="retry, uncertain or dead.")] = None,
    key: Key = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        finish(
            out,
            q.fail(*leased(lease), error=error, disposition=disposition, idempotency_key=key),
        )


def finish(out: Out, answer: FinishAnswer) -> None:
    out.row(answer)
    again = f", again at {when(answer.next_at)}" if answer.next_at else ""
    missing = f", missing {', '.join(map(shown, answer.missing))}" if answer.missing else ""
    out.say(f"item {answer.item} {answer.phase}{again}{missing}")


@app.command("import")
def import_(
    queue: QueueName,
    file: Annotated[Path, typer.Argument(help="Backlog: file, tar or directory of task files.")],
    class_: Annotated[str, typer.Option("--class")] = "default",
    decision: Annotated[
        int | None, typer.Option(help="The accepted import decision; without it, one is proposed.")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help=", ".join(importers.FORMATS))
    ] = None,
    on_error: Annotated[
        str, typer.Option(help="continue, or stop at the first fault.")
    ] = "continue",
    check: Annotated[bool, typer.Option("--check", help="Only report what the file says.")] = False,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Take over a backlog: beads JSONL, task files with front matter, Debian stanzas, GitHub
    issues, Taskmaster. Open work is submitted, finished work needs an import decision that a human
    accepted. Importing twice changes nothing.
    """
    with told(as_json) as out:
        try:
            backlog = importers.read(file, format_, on_error)  # type: ignore[arg-type]
        except (ValueError, OSError) as error:
            raise Fault(str(error), USAGE) from None
        if check:
            out.row(json.loads(importers.report(backlog, as_json=True)))
            out.say(importers.report(backlog).rstrip("\n"))
            return
        with psycopg.connect(dsn, autocommit=True) as connection:
            if decision is None and load.finished(backlog):
                decision = load.propose_import(connection, queue, backlog)
            try:
                loaded = load.load(connection, queue, backlog, class_=class_, decision=decision)
            except load.NotAccepted as refused:
                raise Fault(
                    str(refused),
                    HUMAN,
                    hint=f"A human runs: eve accept {queue} {refused.decision}; then import again.",
                ) from None
        out.row(loaded.as_dict())
        out.say(str(loaded).rstrip("\n"))


# --- read


@app.command(help=promise("eve_stats"))
def status(queue: QueueName, dsn: Dsn = "", as_json: AsJson = False) -> None:
    with told(as_json) as out, Queue(dsn, queue) as q:
        lines = q.stats()
        for line in lines:
            out.row(line)
        out.table(
            ("class", "status", "phase", "items", "oldest since"),
            (
                (line.class_, line.status, line.phase, str(line.items), when(line.oldest_since))
                for line in lines
            ),
        )
        total: Counter[str] = Counter()
        for line in lines:
            total[line.status] += line.items
        out.say(", ".join(f"{word} {total[word]}" for word in STATUS if total[word]) or "empty")


@app.command(help=promise("eve_item"))
def item(
    queue: QueueName, which: Which, by_work_id: ByWorkId = False, dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    with told(as_json) as out, Queue(dsn, queue) as q:
        answer: ItemAnswer = q.item(**named(which, by_work_id))
        out.row(answer)
        hidden = {"intent", "payload", "result"}
        out.table(
            ("", ""),
            (
                (name, when(value) if isinstance(value, datetime) else shown_json(value))
                for name, value in answer.as_dict().items()
                if value is not None and name not in hidden
            ),
        )
        out.say(f"payload {shown_json(answer.payload)}")
        if answer.result is not None:
            out.say(f"result {shown_json(answer.result)}")


@app.command(help=promise("eve_history"))
def history(
    queue: QueueName, which: Which, by_work_id: ByWorkId = False, dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    with told(as_json) as out, Queue(dsn, queue) as q:
        events = q.history(**named(which, by_work_id))
        for event in events:
            out.row(event)
        out.table(
            ("", "at", "event", "phase", "by", "token", "reason"),
            (
                (
                    str(event.version),
                    when(event.at),
                    event.kind,
                    event.phase or "",
                    event.principal or event.actor,
                    "" if event.token is None else str(event.token),
                    event.reason or "",
                )
                for event in events
            ),
        )


@app.command(help=promise("eve_explain"))
def explain(
    queue: QueueName, which: Which, by_work_id: ByWorkId = False, dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    with told(as_json) as out, Queue(dsn, queue) as q:
        for reason in q.explain(**named(which, by_work_id)):
            out.row(reason)
            out.say(f"{reason.code}: {shown(reason.because)}")
            out.say(f"  {reason.remedy}" + (f" Owner: {reason.owner}." if reason.owner else ""))
            if reason.detail:
                out.say(f"  {shown_json(reason.detail)}")


@app.command(help=promise("eve_checks"))
def checks(
    queue: QueueName, which: Which, by_work_id: ByWorkId = False, dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    with told(as_json) as out, Queue(dsn, queue) as q:
        answers = q.checks(**named(which, by_work_id))
        for answer in answers:
            out.row(answer)
        word = {True: "yes", False: "no", None: "unavailable"}
        out.table(
            ("", "code", "", "answer", "evidence"),
            (
                (
                    a.kind,
                    a.code,
                    a.name,
                    word[a.answer],
                    f"missing: {', '.join(a.unavailable)}"
                    if a.unavailable
                    else shown_json(a.evidence),
                )
                for a in answers
            ),
        )


@app.command(help=promise("eve_statement"))
def statement(
    queue: QueueName, which: Which, by_work_id: ByWorkId = False,
    submission: Annotated[
        bool, typer.Option("--submission", help="the number is that of a refused submission")
    ] = False,
    dsn: Dsn = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    with told(as_json) as out, Queue(dsn, queue) as q:
        asked = {"submission": int(which)} if submission else named(which, by_work_id)
        answer = q.statement(**asked)
        out.row(answer)
        out.say(page(answer.statement))


@app.command()
def worksheet(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]")] = None,
    which: Annotated[str | None, typer.Argument(metavar="[ITEM]")] = None,
    by_work_id: ByWorkId = False,
    dsn: Dsn = "",
) -> None:
    """A form that keeps what is said of an item apart: blank, or filled in from the record."""
    with told(False) as out:
        if queue is None or which is None:
            out.say(forms.worksheet("blank", {}))
            return
        with Queue(dsn, queue) as q:
            found = q.checks(**named(which, by_work_id))
            known = {a.code: (a.answer, a.evidence) for a in found}
            out.say(page(forms.worksheet(f"{queue}, item {which}", known)))


@app.command()
def card(
    stored: Annotated[
        bool, typer.Option("--stored", help="six gates for an item in store")
    ] = False,
) -> None:
    """Six checks before work is taken on, or six gates that start from a stored item."""
    with told(False) as out:
        out.say(forms.card(stored))


@app.command(help=promise("eve_audit"))
def audit(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    with told(as_json) as out, psycopg.connect(dsn, autocommit=True) as connection:
        answers = execute(connection, calls.audit(queue))
        if not answers:
            raise Fault("there is no queue that this login may audit", HUMAN)
        for answer in answers:
            out.row(answer)
            for fault in answer.faults:
                out.say(f"{shown(answer.queue)}: {shown_json(fault)}")
        out.say(audit_line(answers))
        if not all(answer.clean for answer in answers):
            raise typer.Exit(UNVERIFIED)


@app.command("call")
def any_call(
    function: Annotated[str, typer.Argument(help="Such as eve_halt.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE …", help="Lists and JSON as JSON.")
    ] = None,
    dsn: Dsn = "",
) -> None:
    """Call any function by its name and arguments as in SQL; the answers are JSON lines."""
    with told(as_json=True) as out, psycopg.connect(dsn, autocommit=True) as connection:
        name = function if function.startswith("eve_") else "eve_" + function
        made = calls.FUNCTIONS.get(name)
        if made is None:
            raise Fault(f"there is no function {shown(name)}", USAGE)
        answer = execute(connection, _call(made, arguments or []))
        for row in answer if isinstance(answer, list) else [answer]:
            out.row(row if isinstance(row, Answer) else {"answer": row})


def _call(made: Callable[..., Call[Any]], arguments: Sequence[str]) -> Call[Any]:
    parameters = inspect.signature(made).parameters
    given: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        name = name if name in parameters else name + "_"
        if not equals or name not in parameters:
            known = ", ".join(word.rstrip("_") for word in parameters)
            raise Fault(f"{shown(argument)} is no NAME=VALUE of: {known}", USAGE)
        try:
            given[name] = _value(parameters[name].annotation.removesuffix(" | None"), text)
        except ValueError as error:
            raise Fault(f"{name.rstrip('_')}: {error}", USAGE) from None
    try:
        return made(**given)
    except TypeError as error:
        raise Fault(str(error), USAGE) from None


def _value(kind: str, text: str) -> Any:
    if kind in ("str", "timedelta | str"):
        return text
    if kind == "Json":
        return json_text(text, "value")
    if kind == "datetime":
        return datetime.fromisoformat(text)
    if kind == "tuple[int, int]":
        return Lease.parse(text)
    return json.loads(text)


# --- what was typed


def named(which: str, by_work_id: bool) -> dict[str, Any]:
    if which.isdecimal() and not by_work_id:
        return {"item": int(which)}
    return {"work_id": which}


def leased(word: str) -> Lease:
    try:
        return Lease.parse(word)
    except ValueError as error:
        raise Fault(str(error), USAGE) from None


def json_text(text: str, name: str) -> JsonText:
    try:
        json.loads(text)
    except ValueError as error:
        raise Fault(f"{name} is no JSON: {error}", USAGE) from None
    return JsonText(text)


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise Fault(str(error), USAGE) from None
    if read.tzinfo is None:
        raise Fault(f"{shown(text)} has no zone", USAGE)
    return read


def moment(text: str | None) -> datetime | None:
    """An instant, or how long ago: 7d, 12h, 30m."""
    if text is None:
        return None
    if ago := re.fullmatch(r"(\d{1,5})([dhm])", text):
        unit = {"d": "days", "h": "hours", "m": "minutes"}[ago[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
    return instant(text)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
