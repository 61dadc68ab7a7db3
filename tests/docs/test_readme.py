"""Every example of the READMEs runs, on a durable server, and prints what is shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import build
from support.cluster import Cluster, running
from support.fleet import Fleet

ROOT = Path(__file__).parents[2]
# What differs from run to run is shown as an ellipsis: instants, and the numbers of items.
INSTANT = re.compile(
    r"(?<=item )\d+|(?<=item => )\d+|(?<='doors', )\d+|\d{4}-\d\d-\d\dT[\d:.]+\+00:00"
)

BLOCK = re.compile(r"^```(sql|text|python|sh|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def durable(fleet: Fleet) -> Iterator[Cluster]:
    with running(fleet.servers[0], options="") as cluster:
        assert build.main(["plain"]) == 0
        cluster.create("readme")
        cluster.client(
            "psql", ["-qX", "-v", "ON_ERROR_STOP=1", "-f", ROOT / "dist" / "eve.sql"], "readme"
        )
        yield cluster


def psql(cluster: Cluster, script: str) -> str:
    done = subprocess.run(
        [str(cluster.server.program("psql")), "-qX", "-v", "VERBOSITY=terse", "-f", "-"],
        env=cluster.environment("readme"), input=script, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return re.sub(r"^psql:<stdin>:\d+: ", "", done.stdout, flags=re.MULTILINE)


def test_the_sessions_of_the_readme_print_what_it_shows(durable: Cluster) -> None:
    found = blocks(ROOT / "README.md")
    shown = 0
    for place, (kind, text) in enumerate(found):
        if kind != "sql":
            continue
        printed = psql(durable, text)
        if place + 1 < len(found) and found[place + 1][0] == "text":
            assert printed.strip() == found[place + 1][1].strip()
            shown += 1
        else:
            assert "ERROR" not in printed, printed
    assert shown >= 4


def test_the_python_of_the_readme_runs(durable: Cluster) -> None:
    (script,) = [text for kind, text in blocks(ROOT / "README.md") if kind == "python"]
    path = os.pathsep.join([str(ROOT / "client"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**durable.environment("readme"), "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    comments = re.findall(r"print\(.*\)\s+# (.+)", script)
    assert comments
    assert done.stdout.splitlines() == comments


def test_the_policies_of_the_readme_apply_as_shown(durable: Cluster, tmp_path: Path) -> None:
    found = blocks(ROOT / "README.md")
    place = next(place for place, (kind, _) in enumerate(found) if kind == "toml")
    (tmp_path / "classes.toml").write_text(found[place][1], encoding="utf-8")
    command, shown = found[place + 1 : place + 3]
    assert (command[0], shown[0]) == ("sh", "text")
    printed = []
    for line in command[1].splitlines():
        _, *words = line.split()
        done = subprocess.run(
            [sys.executable, "-m", "eve_queue.cli", *words],
            env={
                **durable.environment("readme"),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "client"), *sys.path]),
            },
            cwd=tmp_path, input="", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "".join(printed).strip() == shown[1].strip()


def test_the_walk_through_the_house_runs(durable: Cluster) -> None:
    for kind, text in blocks(ROOT / "sql" / "README.md"):
        if kind == "sql":
            assert "ERROR" not in psql(durable, text)


def test_what_the_command_line_says_of_items_is_what_the_page_shows(durable: Cluster) -> None:
    found = blocks(ROOT / "sql" / "README.md")
    shown = 0
    for place, (kind, text) in enumerate(found):
        if kind != "sh" or not text.startswith("eve "):
            continue
        printed = ""
        for line in text.splitlines():
            done = subprocess.run(
                [sys.executable, "-m", "eve_queue.cli", *shlex.split(line)[1:]],
                env={**durable.environment("readme"), "PYTHONPATH": str(ROOT / "client")},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        assert INSTANT.sub("…", printed).split() == found[place + 1][1].split()
        shown += 1
    assert shown == 4


def test_the_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= named <= targets
