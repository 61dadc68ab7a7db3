"""The command line: text for people, JSON lines for machines, stable exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from typer.testing import CliRunner

from eve_queue import calls
from eve_queue.cli import app
from eve_queue.tell import exit_code
from support.database import Database, Home

MakeQueue = Callable[..., str]


class Told(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def eve(dsn: str, *words: str, stdin: str | None = None) -> Told:
    done = CliRunner().invoke(app, list(words), env={"EVE_DSN": dsn}, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Told(done.exit_code, done.stdout, done.stderr)


def test_help_is_the_comment_of_the_function(db: Database) -> None:
    text = " ".join(eve(db.dsn(), "acquire", "--help").out.split())
    promise = db.value(
        "select obj_description(p.oid) from pg_proc as p where p.proname = 'eve_acquire'"
    )
    assert promise in text
    assert "0 done" in eve(db.dsn(), "--help").out


def test_the_happy_path(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    producer, worker, auditor = (db.dsn(f"t_{x}") for x in ("producer", "worker", "auditor"))
    told = eve(producer, "submit", "q", '{"to": "ada"}', "--work-id", "a")
    assert (told.code, told.out) == (0, "ADMIT  item 1  a\n")
    told = eve(producer, "submit", "q", "--work-id", "b", "--after", "a", "--rank", "0")
    assert told.out == "HOLD: dependency_not_ready  item 2  b\n"
    told = eve(worker, "acquire", "q", "w1")
    assert told.code == 0
    assert re.match(r'1\.1  a  until .*\n\{"to": "ada"\}\n', told.out)
    told = eve(worker, "complete", "q", "1.1", "--result", "-", stdin='{"sent": true}')
    assert (told.code, told.out) == (0, "item 1 verified\n")
    told = eve(worker, "acquire", "q", "w1", "--json")
    assert (told.rows[0]["item"], told.rows[0]["token"], told.rows[0]["work_id"]) == (2, "1", "b")
    told = eve(worker, "fail", "q", "2.1", "--error", "no network", "--disposition", "dead")
    assert told.out == "item 2 quarantined\n"
    told = eve(auditor, "item", "q", "a")
    assert "verified" in told.out
    assert 'result {"sent": true}' in told.out
    told = eve(auditor, "history", "q", "b", "--json")
    assert [row["kind"] for row in told.rows] == ["held", "released", "acquired", "failed"]
    assert "no network" in eve(auditor, "history", "q", "2").out
    assert eve(auditor, "explain", "q", "2").out.startswith("quarantined: ")
    told = eve(auditor, "status", "q")
    assert told.out.splitlines()[-1] == "needs_human 1, done 1"


def test_the_audit_ends_with_one_line(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    eve(db.dsn("t_producer"), "submit", "q")
    told = eve(db.dsn("t_auditor"), "audit", "q")
    assert told.code == 0
    assert re.fullmatch(
        r"audit: clean events=\d+ items=2 replay=equal chain=intact", told.out.splitlines()[-1]
    )
    make_queue("r")
    everything = eve(db.dsn("t_auditor"), "audit", "--json")
    assert [row["queue"] for row in everything.rows] == ["q", "r"]


def test_a_forged_history_fails_the_audit_with_7(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    eve(db.dsn("t_producer"), "submit", "q", "--work-id", "a")
    db.rows("alter table eve.ledger disable trigger user")
    db.rows("update eve.ledger set reason = 'forged' where item = 1")
    for row in db.rows("select tgname from pg_trigger where tgrelid = 'eve.ledger'::regclass"):
        db.rows(f"alter table eve.ledger enable always trigger {row.tgname}")
    told = eve(db.dsn("t_auditor"), "audit", "q")
    assert told.code == 7
    assert told.out.splitlines()[-1].startswith("audit: not clean events=")
    assert told.out.splitlines()[-1].endswith("chain=broken")
    assert '"fault": "chain"' in told.out


CODES = [
    (2, "t_worker", ["complete", "q", "nonsense"], "no lease"),
    (2, "t_producer", ["submit", "q", "{"], "no JSON"),
    (2, "t_producer", ["submit", "q", "--rank", "9"], "22023"),
    (2, "t_producer", ["submit", "q", "--deadline", "2031-06-01"], "no zone"),
    (2, "t_producer", ["submit", "q", "--deadline", "soon"], "soon"),
    (2, "t_producer", ["submit"], "Missing argument"),
    (3, "t_worker", ["acquire", "q", "w"], ""),
    (4, "t_producer", ["submit", "q", "--work-id", "taken"], "not_admitted|was not admitted"),
    (4, "t_worker", ["acquire", "q", "w", "--ttl", "1 s"], "policy window"),
    (4, "t_worker", ["acquire", "nowhere", "w"], "P0002"),
    (5, "t_operator", ["approve-slots", "q", "cloud", "3"], "VE501"),
    (5, "t_nobody", ["acquire", "q", "w"], "42501"),
    (5, "t_worker", ["acquire", "q", "w", "--pool", "cloud"], "spend|slots"),
    (6, "t_worker", ["complete", "q", "1.9"], "VE301"),
]


@pytest.mark.parametrize(("code", "role", "words", "said"), CODES)
def test_exit_codes(
    db: Database, make_queue: MakeQueue, code: int, role: str, words: list[str], said: str
) -> None:
    make_queue()
    db.call("t_operator", "eve_define_pool", queue="q", pool="cloud")
    db.call("t_producer", "eve_submit", queue="q", work_id="taken", after=["nothing"])
    told = eve(db.dsn(role), *words)
    assert told.code == code, told
    assert re.search(said, told.err), told.err


def test_a_halted_queue_says_later(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    told = eve(db.dsn("t_operator"), "call", "halt", "queue=q", "reason=maintenance")
    assert told.rows[0]["done"] is True
    told = eve(db.dsn("t_worker"), "acquire", "q", "w", "--json")
    assert (told.code, told.rows[0]["refusal"]) == (3, "fleet_halted")
    error = json.loads(told.err)
    assert (error["exit"], error["code"], error["sqlstate"]) == (3, "fleet_halted", "VE001")
    assert error["next"] == ["eve_acquire('q', …) after eve_resume('q')"]


def test_an_unreachable_server_is_8(tmp_path: Path) -> None:
    told = eve(f"host={tmp_path} dbname=x user=x", "status", "q")
    assert told.code == 8
    assert told.err.startswith("eve: ")
    assert eve("this is no dsn", "status", "q").code == 2


def test_every_error_of_the_server_has_a_code() -> None:
    for state, code in {
        "08006": 8, "57P01": 8, "57014": 8, "40001": 3, "40P01": 3, "53300": 3, "42501": 5,
        "22P02": 2, "P0002": 4, "55000": 4, "42710": 4, "42883": 4, "XX000": 4,
    }.items():  # fmt: skip
        error = psycopg.errors.lookup(state)()
        assert exit_code(error) == code, state


def test_any_function_can_be_called_by_name(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    producer, worker = db.dsn("t_producer"), db.dsn("t_worker")
    told = eve(producer, "call", "eve_submit", "queue=q", 'payload={"a": [1]}', 'after=["x", "y"]',
               "not_before=2031-06-01T12:00Z", "class=default", "must_admit=true")  # fmt: skip
    assert told.code == 0
    assert told.rows[0]["decision"] == "HOLD"
    eve(producer, "submit", "q")
    eve(worker, "acquire", "q", "w")
    told = eve(worker, "call", "submit", "queue=q", "under=2.1")
    assert told.rows[0]["item"] == 3
    told = eve(worker, "call", "turn", "queue=q", "worker=w", "items=[2]", "tokens=[1]",
               'results=[{"ok": true}]', "ttl=90 s")  # fmt: skip
    assert [row["part"] for row in told.rows] == ["finish", "acquire"]
    assert eve(producer, "call", "contract").rows[0]["answer"]["revision"] == 1
    for words in (["no_such"], ["item", "which=1"], ["item", "queue"], ["halt"],
                  ["submit", "queue=q", "priority_class=high"]):  # fmt: skip
        assert eve(producer, "call", *words).code == 2, words


def test_installing_once_and_again(home: Home) -> None:
    home.cluster.create("bare", "template1")
    try:
        dsn = home.cluster.dsn("bare")
        assert eve(dsn, "status", "q").code == 4
        told = eve(dsn, "install", "--plain")
        assert told.code == 0, told
        assert "eve installed (plain)" in told.out
        assert "grant eve_human to NAME" in told.out
        assert eve(dsn, "install").out == "eve is there already\n"
        assert eve(dsn, "install", "--json").rows == [{"installed": False, "road": None}]
        told = eve(dsn, "create-queue", "mine", "--replay-class", "safe", "--durability", "any")
        assert told.out == "queue mine created\n"
        assert eve(dsn, "submit", "mine").out == "ADMIT  item 1  ~1\n"
        told = eve(dsn, "grant", "mine", "t_nobody", "human")
        assert 'grant eve_human to "t_nobody"' in told.out
        assert eve(dsn, "install", "--plain", "--extension").code == 2
    finally:
        home.cluster.drop("bare")


def test_the_extension_is_taken_where_the_server_offers_it(home: Home) -> None:
    home.cluster.create("bare", "template1")
    try:
        assert eve(home.cluster.dsn("bare"), "install", "--json").rows == [
            {"installed": True, "road": "extension"}
        ]
    finally:
        home.cluster.drop("bare")


def test_roles_name_who_can_become_human(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    db.rows("create role t_gateway login noinherit in role eve_human")
    db.rows("create role t_apprentice login in role t_human")
    db.rows("create role t_giver login createrole")
    try:
        told = eve(db.dsn("t_nobody"), "roles", "--json")
        human = {
            row["login"]: row
            for row in told.rows
            if row.get("capability") == "human"
        }  # fmt: skip
        assert human["t_human"]["holds"] is True
        assert human["t_apprentice"]["holds"] is True
        assert (human["t_gateway"]["holds"], human["t_gateway"]["through"]) == (
            False, ["eve_human"],
        )  # fmt: skip
        assert human["postgres"]["holds"] is False
        assert human["postgres"]["grants"] is True
        assert "t_worker" not in human
        told = eve(db.dsn("t_operator"), "roles", "q")
        line = next(x for x in told.out.splitlines() if x.startswith("can become human"))
        assert "t_gateway (set role eve_human)" in line
        assert "t_human (yes)" in line
        assert re.search(r"access to q .*producer", told.out)
    finally:
        for role in ("t_gateway", "t_apprentice", "t_giver"):
            db.rows(f"drop role {role}")


def test_what_the_roles_page_says_is_what_the_queue_does(
    db: Database, make_queue: MakeQueue
) -> None:
    make_queue()
    told = eve(db.dsn("t_operator"), "roles", "--json")
    holds = {(row["login"], row["capability"]) for row in told.rows if row["holds"]}
    for login in ("postgres", "t_human", "t_worker", "t_nobody"):
        for capability in ("human", "worker"):
            counts = db.value("select eve._member(%s, %s)", [login, f"eve_{capability}"])
            assert ((login, capability) in holds) == counts


def test_decisions_are_accepted_and_declined(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    human = db.dsn("t_human")
    assert re.search(r"pool cloud has 3 slots under decision \d+",
                     eve(human, "approve-slots", "q", "cloud", "3").out)  # fmt: skip
    for verb in ("accept", "decline"):
        asked = eve(human, "call", "propose", "queue=q", "kind=policy").rows[0]["decision"]
        assert eve(human, verb, "q", str(asked)).out == f"decision {asked} {verb.rstrip('e')}ed\n"
        assert eve(human, verb, "q", str(asked)).code == 4


BACKLOG = "\n".join(
    json.dumps(record)
    for record in (
        {"id": "a", "title": "A", "status": "closed", "priority": 1},
        {"id": "b", "title": "B", "status": "open", "priority": 0,
         "dependencies": [{"issue_id": "b", "depends_on_id": "a", "type": "blocks"}]},
        {"id": "c", "title": "C", "status": "deferred", "priority": 2},
    )
)  # fmt: skip


def test_a_backlog_is_imported_after_a_human_accepted(
    db: Database, make_queue: MakeQueue, tmp_path: Path
) -> None:
    make_queue()
    db.rows("grant eve_producer, eve_verifier to t_nobody")
    for capability in ("producer", "verifier"):
        db.call("t_operator", "eve_grant_access", queue="q", role="t_nobody", capability=capability)
    file = tmp_path / "issues.jsonl"
    file.write_text(BACKLOG)
    importer = db.dsn("t_nobody")
    try:
        told = eve("", "import", "q", str(file), "--check", "--json")
        assert (told.code, told.rows[0]["tasks"]) == (0, 3)
        told = eve(importer, "import", "q", str(file))
        assert told.code == 5
        found = re.search(r"eve accept q (\d+)", told.err)
        assert found
        assert eve(importer, "import", "q", str(file)).err == told.err
        assert eve(db.dsn("t_human"), "accept", "q", found[1]).code == 0
        told = eve(importer, "import", "q", str(file))
        assert told.code == 0, told.err
        assert "admitted 1" in told.out
        assert "verified 1" in told.out
        assert re.search(r"issues\.jsonl:3  c  held: awaiting_decision", told.out)
        told = eve(importer, "import", "q", str(file), "--json")
        assert told.rows[0]["replayed"] == 3
        assert eve(importer, "import", "q", str(tmp_path / "none")).code == 2
    finally:
        db.rows("revoke eve_producer, eve_verifier from t_nobody")


def test_every_command_is_documented() -> None:
    told = eve("", "--help").out
    for command in app.registered_commands:
        assert command.help or (command.callback and command.callback.__doc__)
        assert command.name is None or command.name in told
    assert "eve_submit" in calls.FUNCTIONS


def test_a1_106_a_worksheet_keeps_what_is_said_apart(db: Database, make_queue: MakeQueue) -> None:
    blank = eve(db.dsn(), "worksheet").out
    sections = re.findall(r"^\d\. (.+)$", blank, re.MULTILINE)
    assert [s.split(":")[0] for s in sections] == [
        "Envelope", "Identities", "State boundaries", "Capacity evidence", "Replay class",
        "Ownership", "Again at execution", "Terminal observations",
    ]  # fmt: skip
    assert "[yes]" not in blank
    assert "[no]" not in blank
    assert "proves nothing by itself" in blank
    make_queue()
    eve(db.dsn("t_producer"), "submit", "q", "--work-id", "a")
    filled = eve(db.dsn("t_auditor"), "worksheet", "q", "a", "--work-id").out
    assert "[yes] operation and effect (A1-087): effect default:a, operation default" in filled
    assert "[no] leased (A1-004)" in filled
    assert re.search(r"\[_+\] value window", filled)


def test_a1_107_a2_172_two_cards_of_six(db: Database) -> None:
    six, stored = eve(db.dsn(), "card").out, eve(db.dsn(), "card", "--stored").out
    assert re.findall(r"^\d. ([^:]+)", six, re.MULTILINE) == [
        "intent", "capacity", "effect safety", "ownership", "admission", "terminal evidence",
    ]  # fmt: skip
    assert "STORED" in stored.splitlines()[0]
    assert re.findall(r"^\d. ([^:]+)", stored, re.MULTILINE) == [
        "intent and value", "deadline and drain", "payload and repetition", "fenced lease",
        "effect evidence", "terminal outcome",
    ]  # fmt: skip


def test_checks_and_statement_are_told(db: Database, make_queue: MakeQueue) -> None:
    make_queue()
    eve(db.dsn("t_producer"), "submit", "q", "--work-id", "a")
    refused = eve(db.dsn("t_producer"), "submit", "q", "--deadline", "2001-01-01T00:00Z", "--json")
    auditor = db.dsn("t_auditor")
    table = eve(auditor, "checks", "q", "a", "--work-id").out
    assert re.search(r"milestone +A1-001 +stored.* yes", table)
    assert re.search(r"A2-134 .* unavailable +missing: value_until", table)
    rows = eve(auditor, "checks", "q", "a", "--work-id", "--json").rows
    assert len(rows) == 83
    said = eve(auditor, "statement", "q", "a", "--work-id").out
    assert said.startswith("Under policy 1 of class default, with unavailable items")
    number = re.search(r'"submission": ?(\d+)', refused.out + refused.err)
    if number:
        told = eve(auditor, "statement", "q", number[1], "--submission")
        assert "rejected intent" in told.out
