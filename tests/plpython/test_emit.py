"""What a module may not have when it becomes the body of a function."""

from __future__ import annotations

import pytest

import emit


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = '$python$'", "quote"),
        ('x = """a\nb"""', "indent the lines"),
        ("x = 1\ndef f():\n    global x\n", "globals"),
        ("schema = 1", "schema is an argument"),
        ("import schema", "schema is an argument"),
        ("def schema(): pass", "schema is an argument"),
    ],
)
def test_refused(source: str, why: str) -> None:
    with pytest.raises(emit.Fault, match=why):
        emit.check(source, {"schema"})


def test_docstrings_and_parameters_are_fine() -> None:
    emit.check(
        '"""A\nB"""\ndef f(schema: int) -> int:\n    """C\n    D"""\n    return 1\n', {"schema"}
    )


def test_drift_is_seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert emit.main(["--check"]) == 0
    monkeypatch.setattr(emit, "emit", lambda name: f"-- {name}")
    assert emit.main(["--check"]) == 1
    assert "plpython/sql/plan.sql: drifted" in capsys.readouterr().out


def test_a_function_without_a_promise_is_refused() -> None:
    with pytest.raises(emit.Fault, match="no docstring"):
        emit.promise("def f(): pass", "f")
    with pytest.raises(emit.Fault, match="no function"):
        emit.promise("", "f")
