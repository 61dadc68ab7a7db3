"""The acceptance lines, counted by group: answered by a test or sentence that exists.

    python tests/acceptance/report.py

Prints the unanswered ids of each group and ends with a line of counts. Exit status 1 where
lines.toml names a test, a statement or an id that is not there: nothing is claimed that does
not exist.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GROUPS = {"E": 85, "A1": 109, "A2": 172, "K": 39}
IDS = {group: [f"{group}-{n:03d}" for n in range(1, last + 1)] for group, last in GROUPS.items()}


@dataclass
class Report:
    """What answers each id, and what is wrong with the answers."""

    answered: set[str] = field(default_factory=set)
    waived: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def unanswered(self, group: str) -> list[str]:
        return [i for i in IDS[group] if i not in self.answered and i not in self.waived]

    @property
    def counts(self) -> str:
        """E 80/85 A1 0/109 A2 0/172 K 0/39"""
        return " ".join(
            f"{group} {len(self.answered.intersection(ids))}/{len(ids)}"
            for group, ids in IDS.items()
        )


@cache
def tests_of(path: Path) -> dict[str, set[str]]:
    """The test functions of a file, each with the texts in its decorators (ids of parameters)."""
    if not path.is_file():
        return {}
    return {
        node.name: {
            part.value
            for decorator in node.decorator_list
            for part in ast.walk(decorator)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def exists(node: str, root: Path = ROOT) -> bool:
    """Whether a test is there: tests/x/test_y.py::test_z, or test_z[id] with that parameter id."""
    found = re.fullmatch(r"(tests/[\w/]+/test_\w+\.py)::(test_\w+)(?:\[(\w+)\])?", node)
    if not found:
        return False
    texts = tests_of(root / found[1]).get(found[2])
    return texts is not None and (found[3] is None or found[3] in texts)


def stands(statement: dict[str, str], root: Path = ROOT) -> bool:
    """Whether a sentence is in its file, however its lines are broken."""
    path = root / statement["file"]
    if not path.is_file():
        return False
    text = " ".join(path.read_text(encoding="utf-8").split())
    return " ".join(statement["says"].split()) in text


def judged(lines: dict[str, Any], statements: dict[str, Any], root: Path = ROOT) -> Report:
    report = Report()
    known = {i for ids in IDS.values() for i in ids}
    for kind in ("tests", "statements", "waived"):
        for line in lines.get(kind, {}):
            if line not in known:
                report.faults.append(f"{line}: no such line")
    for line, nodes in lines.get("tests", {}).items():
        missing = [node for node in nodes if not exists(node, root)]
        report.faults += [f"{line}: no such test: {node}" for node in missing]
        if nodes and not missing:
            report.answered.add(line)
    for line, name in lines.get("statements", {}).items():
        if name not in statements:
            report.faults.append(f"{line}: no such statement: {name}")
        elif not stands(statements[name], root):
            report.faults.append(f"{line}: not said in {statements[name]['file']}: {name}")
            report.answered.discard(line)
        else:
            report.answered.add(line)
    for line, reason in lines.get("waived", {}).items():
        if line in report.answered or not reason:
            report.faults.append(f"{line}: waived although answered, or without a reason")
        else:
            report.waived[line] = reason
    return report


def ranges(ids: list[str]) -> str:
    """E-072 … E-076, E-080"""
    runs: list[list[str]] = []
    for line in ids:
        if runs and int(line[-3:]) == int(runs[-1][-1][-3:]) + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} … {run[-1]}" for run in runs)


def read() -> Report:
    lines = tomllib.loads((HERE / "lines.toml").read_text(encoding="utf-8"))
    statements = tomllib.loads((HERE / "statements.toml").read_text(encoding="utf-8"))
    return judged(lines, statements)


def main() -> int:
    report = read()
    for group in GROUPS:
        if missing := report.unanswered(group):
            print(f"{group} unanswered: {ranges(missing)}")
    for line, reason in report.waived.items():
        print(f"{line} waived: {reason}")
    for fault in report.faults:
        print(f"fault: {fault}", file=sys.stderr)
    print(report.counts)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
