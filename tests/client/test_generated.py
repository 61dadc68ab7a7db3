"""What is generated is as its source says, and the source is what the server has."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from eve_queue import (
    answers,
    calls,
    client,
    client_async,
    errors,
    verbs,
    verbs_async,
    worker,
    worker_async,
)
from eve_queue.answer import Answer, name_in_python
from eve_queue.call import Call
from support.database import Database
from support.servers import ROOT


@pytest.mark.parametrize("script", ["from_sql.py", "async_to_sync.py"])
def test_nothing_generated_has_drifted(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / script), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_function_of_the_server_has_its_call_with_the_same_words(db: Database) -> None:
    there = {
        row.proname: (row.arguments or [], row.promise)
        for row in db.rows("""
            select p.proname, p.proargnames[1 : p.pronargs] as arguments,
                obj_description(p.oid, 'pg_proc') as promise
            from pg_proc as p
            where p.pronamespace = 'public'::regnamespace and p.proname like 'eve\\_%'
        """)
    }
    assert list(there) != []
    assert set(calls.FUNCTIONS) == set(there)
    for name, (arguments, promise) in there.items():
        made = inspect.signature(calls.FUNCTIONS[name])
        assert list(made.parameters) == [name_in_python(argument) for argument in arguments], name
        told = " ".join((inspect.getdoc(calls.FUNCTIONS[name]) or "").split())
        assert told.startswith(" ".join(promise.split())), name


def test_every_answer_has_the_columns_of_its_type(db: Database) -> None:
    there: dict[str, list[str]] = {}
    for row in db.rows("""
        select t.typname, a.attname
        from pg_type as t join pg_attribute as a on a.attrelid = t.typrelid
        where t.typnamespace = 'eve'::regnamespace and t.typname ~ '_answer$' and a.attnum > 0
        order by t.typname, a.attnum
    """):
        there.setdefault("".join(map(str.capitalize, row.typname.split("_"))), []).append(
            name_in_python(row.attname)
        )
    here = {
        name: list(inspect.signature(made).parameters)
        for name, made in vars(answers).items()
        if isinstance(made, type) and issubclass(made, Answer) and made is not Answer
    }
    assert here == there


def test_the_exceptions_are_the_vocabulary(db: Database) -> None:
    rows = db.rows("select r.* from eve.refusal as r")
    assert len(rows) == 16
    for row in rows:
        made = type(errors.refusal(row.code))
        assert made.__name__ == "".join(map(str.capitalize, row.code.split("_")))
        assert (made.code, made.sqlstate, made.http_status, made.retry) == (
            row.code, row.sqlstate, row.http_status, row.retry,
        )  # fmt: skip
        assert (made.default_message, made.default_hint) == (row.message, row.hint)
        assert made.__name__ in errors.__all__


def test_every_function_of_a_queue_is_a_method() -> None:
    for name in calls.FUNCTIONS:
        method = name_in_python(name.removeprefix("eve_"))
        assert callable(getattr(client.Queue, method)), name
        assert callable(getattr(client_async.AsyncQueue, method)), name


def test_sync_and_async_say_the_same() -> None:
    for here, there in (
        (client.Queue, client_async.AsyncQueue),
        (client.Job, client_async.AsyncJob),
        (worker.Worker, worker_async.AsyncWorker),
        (verbs.Verbs, verbs_async.AsyncVerbs),
    ):
        mine = {name for name in vars(here) if not name.startswith("__")}
        assert mine == {name for name in vars(there) if not name.startswith("__")}
        for name in mine:
            if inspect.isfunction(getattr(here, name)):
                assert list(inspect.signature(getattr(here, name)).parameters) == list(
                    inspect.signature(getattr(there, name)).parameters
                )


def test_a_call_sends_only_what_was_given() -> None:
    call: Call[object] = calls.submit("mail", work_id="a")
    query, values = call.pyformat()
    assert values == {"queue": "mail", "work_id": "a"}
    assert query.endswith(
        "from public.eve_submit(queue => cast(%(queue)s as text),"
        " work_id => cast(%(work_id)s as text)) as r"
    )
