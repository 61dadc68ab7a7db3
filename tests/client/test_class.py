"""`eve class`: policies from a file, with the difference and the backtest first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eve_queue import classes
from eve_queue.cli import app
from support.database import Database

MakeQueue = Callable[..., str]

FILE = """
queue = "q"

[class.default]
replay_class = "safe"

[class.mail]
preset = "effect"
replay_class = "reconcilable"
attempts = 5
wait_hint = "1 min"
schema = "mail.json"
declared.value_window = "for ever"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mail.json").write_text('{"type": "object", "properties": {"a": {"const": null}}}')
    path = tmp_path / "classes.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def eve(db: Database, make_queue: MakeQueue) -> Callable[..., Any]:
    make_queue()

    def run(*words: str, code: int = 0, stdin: str | None = None) -> Any:
        done = CliRunner().invoke(
            app, ["class", *words], env={"EVE_DSN": db.dsn("t_operator")}, input=stdin
        )
        assert done.exit_code == code, done.output
        return done

    return run


def revisions(db: Database) -> dict[str, int]:
    return {r.name: r.revision for r in db.rows("select name, revision from eve.work_class")}


def test_a_file_is_shown_asked_about_and_applied(db: Database, eve: Any, file: Path) -> None:
    said = eve("apply", str(file), stdin="y\n").stdout
    assert "class default: unchanged, revision 1" in said
    assert "class mail: revision 1, preset effect" in said
    assert "  + attempts 5" in said
    assert "  answered by policy: dead_letter_policy" in said
    assert "  answered by preset effect: " in said
    assert "  answered by nobody: caller_scope, end_to_end_deadline, queue_budget" in said
    assert "  unanswered 4: Which item and byte limits hold?" in said
    assert "unanswered 2:" not in said
    assert "Apply 1 change?" in said
    assert said.splitlines()[-1] == "class mail has revision 1"
    assert revisions(db) == {"default": 1, "mail": 1}
    policy = db.row(
        "select (r.policy).*, r.document from eve.class_revision as r"
        " join eve.work_class as k using (queue_id, class_id) where k.name = 'mail'"
    )
    assert (policy.attempts, policy.replay_class, policy.completion_test) == (
        5, "reconcilable", "effects",
    )  # fmt: skip
    assert policy.document["schema"]["properties"] == {"a": {"const": None}}
    assert policy.schema_digest


def test_what_did_not_change_is_left_alone(db: Database, eve: Any, file: Path) -> None:
    eve("apply", str(file), "--yes")
    again = eve("apply", str(file), "--yes").stdout
    assert again.splitlines()[-1] == "nothing to apply"
    assert revisions(db) == {"default": 1, "mail": 1}
    file.write_text(
        FILE.replace("attempts = 5", "attempts = 6\nlife = '1 day'").replace(
            'wait_hint = "1 min"\n', ""
        ).replace('preset = "effect"', 'preset = "job"')
    )  # fmt: skip
    said = eve("apply", str(file), "--yes").stdout
    for line in (
        "  ~ preset effect → job",
        "  ~ attempts 5 → 6",
        "  + life 1 day",
        "  - wait_hint 1 min",
    ):
        assert line in said, said
    assert revisions(db) == {"default": 1, "mail": 2}


def test_who_says_no_changes_nothing(db: Database, eve: Any, file: Path) -> None:
    assert "not applied" in eve("apply", str(file), stdin="n\n", code=5).stderr
    assert "--yes" in eve("apply", str(file), stdin="", code=2).stderr
    rows = [json.loads(x) for x in eve("apply", str(file), "--json").stdout.splitlines()]
    assert [(r["class"], r["unchanged"]) for r in rows] == [("default", True), ("mail", False)]
    assert rows[1]["added"]["attempts"] == 5
    assert rows[1]["answers"]["retry_owner"]["answered_by"] == "preset effect"
    assert revisions(db) == {"default": 1}
    rows = [json.loads(x) for x in eve("apply", str(file), "--json", "--yes").stdout.splitlines()]
    assert rows[-1] == {"class": "mail", "applied": True, "revision": 1}


def test_all_classes_of_a_file_or_none(db: Database, eve: Any, file: Path) -> None:
    file.write_text(FILE + "[class.other]\nreplay_class = 'safe'\nattempts = 'many'\n")
    said = eve("apply", str(file), "--yes", code=2).stderr
    assert f"{file}: [class.other]: policy refused: attempts is not a number" in said
    assert revisions(db) == {"default": 1}
    file.write_text(FILE + "[class.other]\natempts = 3\nreplay_class = 'safe'\n")
    assert '[class.other]: unknown policy field "atempts"' in eve(
        "apply", str(file), "--yes", code=2
    ).stderr  # fmt: skip
    file.write_text("[class.other]\nattempts = 3\n")
    assert "replay_class is not said" in eve(
        "apply", str(file), "--queue", "q", "--yes", code=2
    ).stderr  # fmt: skip


FAULTS = {
    "queue = ": ": Invalid value",
    "q = 1": ": q: a file has queue and tables [class.NAME]",
    "queue = 1": ": queue: is not a text",
    "class = 1": ": class: write tables [class.NAME]",
    "[class]\nx = 1": ": [class.x]: is not a table",
    "[class.x]\npreset = 1": ": [class.x] preset: is not a text",
    "[class.x]\nlife = 2031-06-01": ": [class.x] life: Object of type date",
    "[class.x]\nbackoff_factor = nan": ": [class.x] backoff_factor: Out of range",
    "[class.x]\nschema = 'none.json'": ": [class.x] schema: ",
    "[class.x]\nschema = 'bad.toml'": ": [class.x] schema: ",
    "[class.x]\nreplay_class = 'safe'": ": names no queue",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_names_file_table_and_key(eve: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert f"{path}{FAULTS[text]}" in eve("apply", str(path), "--yes", code=2).stderr


def test_a_file_that_is_not_there(eve: Any, tmp_path: Path) -> None:
    assert (
        "nothing.toml: No such file" in eve("apply", str(tmp_path / "nothing.toml"), code=2).stderr
    )
    with pytest.raises(classes.Unreadable):
        classes.read(tmp_path)


def test_the_backtest_comes_before_the_question(db: Database, eve: Any, file: Path) -> None:
    for _ in range(3):
        db.call("t_producer", "eve_submit", queue="q")
    file.write_text("queue = 'q'\n[class.default]\nreplay_class = 'safe'\nitem_limit = 2\n")
    said = eve("apply", str(file), "--since", "1d", stdin="n\n", code=5).stdout
    assert "item 3: ADMIT → REJECT item_budget_exhausted" in said
    assert ": 3 judged, 1 would change, 0 unjudgeable" in said
    assert said.index("would change") < said.index("Apply 1 change?")
    rows = eve("apply", str(file), "--since", "2031-06-01T12:00Z", "--json").stdout.splitlines()
    summary = json.loads(rows[-1])["backtest"]["because"]
    assert (summary["judged"], summary["recorded"]) == (0, 0)
    assert "no zone" in eve("apply", str(file), "--since", "2031-06-01", code=2).stderr
    eve("apply", str(file), "--since", "soon", code=2)


def test_a_class_is_shown_with_its_answers_and_revisions(eve: Any, file: Path) -> None:
    eve("apply", str(file), "--yes")
    said = eve("show", "q", "mail").stdout
    assert "class mail: revision 1, preset effect" in said
    assert "unanswered 4: " in said
    lines = {line.split()[0]: line for line in said.splitlines() if line.split()}
    assert "preset effect" in lines["retry_owner"]
    assert "policy" in lines["value_window"]
    assert "for ever" in lines["value_window"]
    assert "nobody" in lines["queue_budget"]
    assert "t_operator" in lines["1"]
    row = json.loads(eve("show", "q", "mail", "--json").stdout)
    assert (row["class"], len(row["history"])) == ("mail", 1)
    assert row["policy"]["attempts"] == 5
    assert "there is no class nothing" in eve("show", "q", "nothing", code=4).stderr
