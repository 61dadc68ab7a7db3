"""The demo, as somebody sees it who has just cloned the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import build
from support.servers import ROOT

AUDIT = r"audit: clean events=\d+ items=\d+ replay=equal chain=intact"


@pytest.fixture(scope="module", autouse=True)
def plain_sql() -> None:
    assert build.main(["plain"]) == 0


def demo(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "eve_queue.demo", *words],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "BACKLOG": "", "PYTHONPATH": str(ROOT / "client")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return [re.sub(r"^\[ *[\d.]+ s\] ", "", line) for line in done.stdout.splitlines()]


def issue(name: str, after: Sequence[str] = (), status: str = "open") -> dict[str, Any]:
    edges = [{"issue_id": name, "depends_on_id": a, "type": "blocks"} for a in after]
    return {"id": name, "title": name, "status": status, "dependencies": edges}


def test_the_bundled_backlog_is_drained_and_the_audit_is_clean() -> None:
    lines = demo()
    assert re.fullmatch(AUDIT, lines[-1])
    text = "\n".join(lines)
    assert re.search(r"w1 hangs in the middle of \S+, token 1 \(SIGSTOP\)", text)
    assert "admitted acquired" in text
    assert "lease_expired acquired completed" in text
    assert "refused, SQLSTATE VE301 stale_fence; now killed" in text
    assert "leases from 1 s (the contract's floor is 60 s)" in text
    seconds = re.search(r"([\d.]+) s in all", text)
    assert seconds
    assert float(seconds[1]) < 60


def test_knots_are_reported_and_waived_and_what_stays_is_said(tmp_path: Path) -> None:
    path = tmp_path / "issues.jsonl"
    records = [
        issue("done", status="closed"),
        issue("gone", status="tombstone"),
        issue("first", ["done"]),
        issue("second", ["first"]),
        issue("x", ["y"]),
        issue("y", ["x"]),
        issue("z", ["x", "second"]),
        issue("later", status="deferred"),
        issue("never", ["nowhere"]),
        issue("orphan", ["gone"]),
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    lines = demo("--backlog", str(path))
    assert re.fullmatch(AUDIT, lines[-1])
    text = "\n".join(lines)
    for said in (
        "imported twice, the second time 10 of 10 replayed",
        "drain: 1 of 8 ready at once, 3 workers",
        "drained 2 of 8, waves 1 then 1",
        "cycle, as the queue explains it: x → y → x",
        "cycles reported: 1",
        "human waives ",
        "drained 5 of 8, waves 1 then 2",
        "human accepts later, held back by its source",
        "drained 6 of 8, waves 1",
        "never stays: a dependency names no item of this queue",
        "orphan stays: a dependency is not verified",
    ):
        assert said in text, (said, text)


REAL = {
    "beads-drain.jsonl": (
        "drain: 184 of 218 ready at once, 3 workers",
        "drained 218 of 218, waves 184 then 34",
    ),
    "wraith-tasks.tar": (
        "drain: 1 of 26 ready at once, 3 workers",
        "drained 26 of 26, waves 1 then 4 then 3 then 4 then 5 then 6 then 3",
    ),
    "debian-base.packages": (
        "drained 28 of 265, waves 24 then 4",
        "cycles reported: 3",
        "human waives libc6 → libgcc-s1: decision ",
        "drained 265 of 265, waves ",
    ),
}


SAID = os.environ.get("EVE_BACKLOGS")
FOLDER = Path(SAID) if SAID else ROOT.parent / "shared" / "data"
AT_HAND = [name for name in REAL if SAID or (FOLDER / name).is_file()]


@pytest.mark.parametrize("name", AT_HAND)
def test_real_backlogs_drain_as_measured(name: str) -> None:
    """Those that are at hand, looked for as in tests/importers/test_real.py."""
    path = FOLDER / name
    lines = demo("--backlog", str(path))
    assert re.fullmatch(AUDIT, lines[-1])
    text = "\n".join(lines)
    for words in REAL[name]:
        assert words in text, (words, text)
    assert " stays: " not in text


def test_what_is_no_backlog_is_said_before_anything_is_started(tmp_path: Path) -> None:
    for words in (["--backlog", str(tmp_path / "none")], ["--backlog", __file__]):
        done = subprocess.run(
            [sys.executable, "-m", "eve_queue.demo", *words],
            capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT / "client")},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("demo: ")
