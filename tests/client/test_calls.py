"""A call renders for every driver: same statement, same values, no setting up of the driver."""

from __future__ import annotations

import re
from collections import UserDict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eve_queue import JsonText, Lease, calls
from eve_queue.answers import ActAnswer, AdmissionAnswer


def test_the_three_styles_differ_in_their_placeholders_only() -> None:
    call = calls.renew("mail", 7, 4294967297, ttl=timedelta(seconds=90), progress={"at": 1})
    (pyformat, by_name), (named, also), (numeric, values) = (
        call.pyformat(),
        call.named(),
        call.numeric(),
    )
    assert by_name == also
    assert list(by_name.values()) == values
    holes = [r"%\((\w+)\)s", r":(\w+)", r"\$\d+"]
    bare = {
        re.sub(hole, "?", text)
        for hole, text in zip(holes, (pyformat, named, numeric), strict=True)
    }
    assert len(bare) == 1
    assert [int(n) for n in re.findall(r"\$(\d+)", numeric)] == list(range(1, len(values) + 1))
    assert "::" not in named


def test_values_travel_as_every_driver_takes_them() -> None:
    noon = datetime(2031, 6, 1, 12, tzinfo=UTC)
    _, values = calls.submit(
        "mail",
        {"nested": UserDict({"a": (1, 2)}), "text": "é"},
        after=("a", "b"),
        not_before=noon,
        minimum_completion_margin=timedelta(days=1, seconds=2, microseconds=3),
        under=Lease(7, 9),
        dependency_revisions=JsonText("null"),
    ).pyformat()
    assert values == {
        "queue": "mail",
        "payload": '{"nested": {"a": [1, 2]}, "text": "é"}',
        "after": ["a", "b"],
        "not_before": noon,
        "minimum_completion_margin": "1 days 2 seconds 3 microseconds",
        "under_item": 7,
        "under_token": 9,
        "dependency_revisions": "null",
    }
    _, values = calls.turn("mail", "w", items=[1], tokens=[2], results=[{"a": 1}]).pyformat()
    assert values["results"] == ['{"a": 1}']


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"after": "abc"}, TypeError),
        ({"after": b"abc"}, TypeError),
        ({"not_before": datetime(2031, 6, 1)}, TypeError),  # noqa: DTZ001 - the point
        ({"not_before": "2031-06-01"}, TypeError),
        ({"payload": float("nan")}, ValueError),
        ({"payload": {"a": object()}}, TypeError),
        ({"payload": b"raw"}, TypeError),
    ],
)
def test_what_has_no_form_is_refused_before_it_is_sent(
    arguments: dict[str, Any], fault: type[Exception]
) -> None:
    with pytest.raises(fault):
        calls.submit("mail", **arguments)


def test_rows_are_read_by_place_or_by_name_whatever_the_driver_parsed() -> None:
    call = calls.accept("mail", 3)
    values = (True, 0, 3, "accepted", 2, '{"kind": "waiver"}', False)
    names = ("done", "item", "decision", "phase", "version", "detail", "replayed")
    parsed = (*values[:5], {"kind": "waiver"}, False)
    expected = ActAnswer(
        done=True, item=0, decision=3, phase="accepted", version=2, detail={"kind": "waiver"},
        replayed=False,
    )  # fmt: skip
    for row in (values, list(values), dict(zip(names, values, strict=True)), parsed):
        assert call.result([row]) == expected
    assert expected.as_dict() == dict(zip(names, parsed, strict=True))
    with pytest.raises(ValueError, match="7 columns, the row 2"):
        call.result([(True, 0)])


def test_a_word_of_python_is_a_field_with_an_underscore() -> None:
    answer = calls.stats("mail").result([("default", "ready", "ready", 2, datetime.now(UTC))])[0]
    assert answer.class_ == "default"
    assert next(iter(answer.as_dict())) == "class"


def test_a_lease_is_one_word() -> None:
    assert str(Lease(7, 4294967297)) == "7.4294967297"
    assert Lease.parse("7.4294967297") == Lease(7, 4294967297)
    for wrong in ("7", "7.", ".7", "a.b", "7.8.9", "-7.8", ""):
        with pytest.raises(ValueError, match="no lease"):
            Lease.parse(wrong)


def test_not_admitted_is_raised_on_request() -> None:
    told = AdmissionAnswer(
        decision="REJECT", reason="work_id_taken", item=None, work_id="a", phase=None,
        version=None, revision=1, submission=1, survivor=None, wait_hint=None, evidence={},
        replayed=False,
    )  # fmt: skip
    with pytest.raises(Exception, match="not admitted") as caught:
        told.raise_for_refusal()
    assert caught.value.detail["reason"] == "work_id_taken"  # type: ignore[attr-defined]
