"""The acceptance report claims what exists, and nothing else."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acceptance_report", HERE / "report.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


report = load()
HOLDS = "tests/contract/test_rule.py::test_e_003_an_acquisition_mints_the_next_token"


def test_every_test_and_statement_that_is_named_exists() -> None:
    assert report.read().faults == []


@pytest.mark.parametrize(
    "name", tomllib.loads((HERE / "statements.toml").read_text(encoding="utf-8"))
)
def test_a_statement_stands_where_it_is_said_to_stand(name: str) -> None:
    statements = tomllib.loads((HERE / "statements.toml").read_text(encoding="utf-8"))
    assert report.stands(statements[name]), statements[name]


def test_the_lines_of_this_project_are_405() -> None:
    assert sum(len(ids) for ids in report.IDS.values()) == 405


def test_only_transport_is_open_in_group_e() -> None:
    assert report.read().unanswered("E") == [f"E-{n:03d}" for n in range(72, 77)]


def test_the_report_ends_with_its_counts() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "report.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last == report.read().counts
    assert last.startswith("E 80/85 ")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ({"tests": {"E-001": ["tests/contract/test_rule.py::test_not_there"]}}, "no such test"),
        ({"tests": {"E-001": ["tests/contract/test_gone.py::test_e_001"]}}, "no such test"),
        ({"tests": {"E-001": ["somewhere"]}}, "no such test"),
        ({"tests": {"E-001": [HOLDS + "[not_an_id]"]}}, "no such test"),
        ({"tests": {"E-001": [HOLDS, "tests/contract/test_rule.py::test_no"]}}, "no such test"),
        ({"tests": {"E-999": [HOLDS]}}, "no such line"),
        ({"statements": {"E-080": "unsaid"}}, "no such statement"),
        ({"statements": {"E-080": "false"}}, "not said"),
        ({"tests": {"E-001": [HOLDS]}, "waived": {"E-001": "why not"}}, "waived although"),
        ({"waived": {"E-001": ""}}, "without a reason"),
    ],
)
def test_what_does_not_exist_is_a_fault_and_not_counted(
    lines: dict[str, dict[str, object]], fault: str
) -> None:
    statements = {"false": {"file": "README.md", "says": "eve proves everything."}}
    judged = report.judged(lines, statements)
    assert any(fault in text for text in judged.faults), judged.faults
    if "waived although" not in fault and "no such line" not in fault:
        assert judged.answered == set()


def test_what_exists_is_counted() -> None:
    judged = report.judged({"tests": {"E-001": [HOLDS], "K-039": []}}, {})
    assert judged.faults == []
    assert judged.counts == "E 1/85 A1 0/109 A2 0/172 K 0/39"
    assert report.ranges(["E-001", "E-003", "E-004", "E-005"]) == "E-001, E-003 … E-005"


def test_a_test_in_test_contract_that_names_a_line_is_mapped_to_it() -> None:
    """And the other way round: a name says which line it answers."""
    lines = tomllib.loads((HERE / "lines.toml").read_text(encoding="utf-8"))["tests"]
    mapped = {node.split("[")[0] for nodes in lines.values() for node in nodes}
    for path in sorted((report.ROOT / "tests/contract").glob("test_*.py")):
        for name in report.tests_of(path):
            if name.startswith("test_e_0"):
                assert f"{path.relative_to(report.ROOT)}::{name}" in mapped
