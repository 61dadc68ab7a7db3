"""Laws about files: the plan is complete, nothing generated drifts, every test file is run."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import build
import emit
from support.servers import ROOT

PROJECTS = build.projects(ROOT)
CHANGES = [change for project in PROJECTS for change in project.changes]
ON_FOREIGN_DATA = {  # these say by name what they could not measure
    "tests/importers/test_real.py",
    "tests/client/test_demo.py",
}
SELDOM_RUN = {"tests/bench", "tests/crash"}  # by make bench and make crash, not by make test


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def test_plan_objects_and_scripts_agree() -> None:
    assert [fault for project in PROJECTS for fault in project.faults()] == []
    assert emit.main(["--check"]) == 0


def test_an_object_file_says_what_it_is() -> None:
    for change in CHANGES:
        first = change.text.split("\n", 1)[0]
        assert first.startswith(f"-- {change.name}.sql · "), change.name


def test_every_table_and_function_made_has_its_comment_beside_it() -> None:
    """So that reverts and verifications are complete."""
    made = re.compile(
        r"create (?:or replace )?(?:unlogged )?"
        r"(function|procedure|aggregate|table|type|view|sequence|schema|domain)\s+([\w.]+)"
    )
    for change in CHANGES:
        spoken = {(thing.kind, thing.name.split("(")[0]) for thing in change.objects}
        for statement in change.statements:
            if found := made.match(statement):
                assert (found[1], found[2]) in spoken, f"{change.name}: {found[0]}"


def test_sql_lines_are_at_most_120_wide() -> None:
    """But for the texts of comments, which are one sentence a line."""
    for change in CHANGES:
        for number, line in enumerate(change.text.split("\n"), 1):
            spoken = line.startswith(("'", "comment on "))
            assert spoken or number == 1 or len(line) <= 120, f"{change.name}:{number}"


def test_every_test_file_is_run() -> None:
    settings = tomllib.loads(text(ROOT / "pyproject.toml"))["tool"]["pytest"]["ini_options"]
    run = [ROOT / place for place in [*settings["testpaths"], *SELDOM_RUN]]
    for path in (ROOT / "tests").rglob("*.py"):
        if re.search(r"^(async )?def test_|^class Test", text(path), re.MULTILINE):
            assert path.name.startswith("test_"), f"{path}: pytest does not collect this name"
            assert any(place in path.parents for place in run), f"{path}: in no testpath"


def test_no_test_is_skipped_or_sleeps() -> None:
    may = {Path(__file__), *(ROOT / name for name in ON_FOREIGN_DATA)}
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path not in may:
            found = re.findall(
                r"pytest\.skip|mark\.skip|mark\.xfail|importorskip|time\.sleep|pg_sleep", text(path)
            )
            assert not found, f"{path}: {found}"


def test_every_refusal_is_asserted_by_code() -> None:
    """Unasserted 0: each code of the vocabulary is expected by name in some test."""
    rows = text(ROOT / "sql/vocabulary/refusal.sql")
    codes = set(re.findall(r"^\('([a-z_]+)', 'VE\d{3}'", rows, re.MULTILINE))
    assert len(codes) == 16
    asserted = {
        code
        for path in (ROOT / "tests").rglob("test_*.py")
        for line in text(path).splitlines()
        if "refus" in line
        for code in re.findall(r"[\"']([a-z_]+)[\"']", line)
    }
    assert codes - asserted == set()


def test_no_machine_and_no_registry_is_named() -> None:
    words = re.compile(
        r"/wor[k]/|/roo[t]/|/home/[a-z]+/|\.pye[n]v|pypi\.or[g]|pythonhoste[d]|npmjs\.[a-z]+"
        r"|deb\.debia[n]|https?://\S*(/simple/|/pool/main/|/packages/[0-9a-f]{2}/|/-/)"
    )
    for path in committed():
        found = words.search(text(path))
        assert not found, f"{path.relative_to(ROOT)}: {found and found[0]}"


def test_the_names_of_the_version_agree() -> None:
    package = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["version"]
    for project in PROJECTS:
        control = text(project.root / f"sql/{project.name}.control")
        assert f"default_version = '{package}'" in control
        assert project.version == package
