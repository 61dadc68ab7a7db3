"""What a candidate policy would have decided of the submissions on record."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk, at, changed

START = "2031-06-01 12:00Z"


def backtest(
    desk: Desk, policy: dict[str, Any] | None = None, **more: Any
) -> tuple[list[Row], Any]:
    """The rows, and the summary of the last one."""
    arguments: dict[str, Any] = {"class": "default", "since": START, **more}
    before = desk.census()
    rows = desk.calls(
        "t_operator", "eve_backtest", policy={"replay_class": "safe", **(policy or {})}, **arguments
    )
    assert changed(before, desk.census()) == []
    *found, last = rows
    assert last.part == "summary"
    summary = last.because
    parts = [row.part for row in found]
    assert summary["changed"] == parts.count("change")
    assert summary["unjudgeable"] == parts.count("unjudgeable")
    assert summary["judged"] + summary["unjudgeable"] + summary["left_out"] == summary["recorded"]
    return found, summary


def each(desk: Desk, number: int, **arguments: Any) -> list[int]:
    """Submissions a second apart."""
    items = []
    for _ in range(number):
        items.append(desk.item(**arguments))
        desk.clock.advance(1)
    return items


def would(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.item, row.would_decision, row.would_reason) for row in rows]


@pytest.fixture(autouse=True)
def noon(desk: Desk) -> datetime:
    return desk.clock.set(START)


def test_a_window_without_records_says_that_nothing_was_judged(desk: Desk) -> None:
    rows, summary = backtest(desk, {"item_limit": 1})
    assert rows == []
    assert (summary["recorded"], summary["judged"], summary["changed"]) == (0, 0, 0)
    each(desk, 1)
    rows, summary = backtest(desk, since="2031-06-01 12:00:01Z")
    assert (rows, summary["recorded"]) == ([], 0)


def test_the_policy_that_judged_changes_nothing(desk: Desk) -> None:
    """Whatever was decided: the record replays to itself."""
    policy: dict[str, Any] = {
        "item_limit": 5, "byte_limit": 200, "payload_limit": 100, "life": "1 h",
        "completion_margin": "1 min", "submitters": ["t_producer"], "dependencies": ["mail"],
        "age_limit": "1 min", "age_action": "reject",
    }  # fmt: skip
    desk.define(replay_class="safe", **policy)
    said = [desk.submit(work_id="a"), desk.submit(payload={"long": "x" * 100}),
            desk.submit(role="t_operator"), desk.submit(deadline="2031-06-01 12:00:30Z"),
            desk.submit(after=["b"]), desk.submit(work_id="a"),
            desk.submit(not_before="2031-06-01 12:10Z")]  # fmt: skip
    desk.clock.advance(10)
    desk.call("t_operator", "eve_set_health", dependency="mail", health="unhealthy")
    said += [desk.submit()]
    desk.clock.advance(90)
    said += [desk.submit()]
    desk.clock.advance(10)
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
    assert desk.complete(desk.lease()).phase == "verified"
    desk.clock.advance(1)
    said += [desk.submit(), desk.submit(), desk.submit()]
    assert {row.reason for row in said} == {
        None, "payload_too_large", "class_not_authorised", "deadline_passed", "unknown_dependency",
        "work_id_taken", "not_before", "dependency_unhealthy", "age_budget_exceeded",
        "item_budget_exhausted",
    }  # fmt: skip
    rows, summary = backtest(desk, policy)
    assert would(rows) == []
    assert (summary["recorded"], summary["judged"]) == (len(said), len(said))


def test_a_tighter_budget_rejects_what_would_not_have_fitted(desk: Desk) -> None:
    """Counted as it would have been: what the candidate refuses takes no room afterwards."""
    first, second, third = each(desk, 3)
    desk.clock.advance(10)
    assert desk.complete(desk.lease(item=first)).phase == "verified"
    desk.clock.advance(10)
    fourth, fifth = each(desk, 2)
    rows, summary = backtest(desk, {"item_limit": 2})
    refused = ("REJECT", "item_budget_exhausted")
    assert would(rows) == [(third, *refused), (fifth, *refused)]
    because = rows[0].because
    assert (because["step"], because["items"], because["item_limit"]) == (9, 2, 2)
    assert summary["changes"] == {"ADMIT → REJECT item_budget_exhausted": 2}
    rows, _ = backtest(desk, {"byte_limit": 4})
    assert [row.would_reason for row in rows] == ["byte_budget_exhausted"] * 2
    assert {second, fourth}.isdisjoint(row.item for row in rows)


def test_a_budget_shared_with_other_classes_counts_them(desk: Desk) -> None:
    desk.define("other", replay_class="safe")
    other = desk.item(**{"class": "other"})
    desk.clock.advance(1)
    (_, second) = each(desk, 2)
    rows, _ = backtest(desk, {"shared_item_limit": 2})
    assert would(rows) == [(second, "REJECT", "item_budget_exhausted")]
    assert other < second
    assert rows[0].because["shared_items"] == 2


def test_a_looser_budget_admits_what_was_refused(desk: Desk) -> None:
    """What only the candidate admits takes room for as long as the others lived on average."""
    desk.define(replay_class="safe", item_limit=1)
    first = desk.item()
    desk.clock.advance(10)
    refused = [desk.submit() for _ in range(2)]
    assert {row.reason for row in refused} == {"item_budget_exhausted"}
    desk.clock.advance(10)
    assert desk.complete(desk.lease(item=first)).phase == "verified"
    desk.clock.advance(1)
    each(desk, 1)
    rows, _ = backtest(desk, {"item_limit": 2})
    assert [(r.submission, r.was_reason, r.would_decision) for r in rows] == [
        (refused[0].submission, "item_budget_exhausted", "ADMIT")
    ]
    assert rows[0].because["items"] == 1


def test_deadlines_margins_and_value_are_judged_by_what_the_candidate_fills_in(desk: Desk) -> None:
    desk.define(replay_class="safe", life="1 h")
    filled = desk.item(requested_at="2031-06-01 11:30Z")
    said = desk.item(deadline="2031-06-01 12:30Z", requested_at="2031-06-01 11:30Z")
    rows, _ = backtest(desk, {"life": "20 min"})
    assert would(rows) == [(filled, "EXPIRE", "deadline_passed")]
    rows, _ = backtest(desk, {"value_window": "20 min"})
    assert would(rows) == [(filled, "EXPIRE", "value_window_ended"),
                           (said, "EXPIRE", "value_window_ended")]  # fmt: skip
    rows, _ = backtest(desk, {"completion_margin": "45 min"})
    assert would(rows) == [(said, "EXPIRE", "deadline_passed")]
    desk.define(replay_class="safe", completion_margin="2 h")
    assert desk.submit(deadline="2031-06-01 13:00Z").reason == "deadline_passed"
    rows, _ = backtest(desk, {"completion_margin": "1 min"})
    assert [(r.item, r.was_reason, r.would_decision) for r in rows] == [
        (None, "deadline_passed", "ADMIT")
    ]


def test_capacity_is_what_was_observed_then(desk: Desk) -> None:
    """Not what is observed now; and where nobody measured, nobody can say."""
    (early,) = each(desk, 1)
    desk.call("t_operator", "eve_measure", **{"class": "default"})
    desk.clock.advance(30)
    fresh, = each(desk, 1)  # fmt: skip
    desk.clock.advance(300)
    stale, = each(desk, 1)  # fmt: skip
    desk.clock.advance(10)
    desk.call("t_operator", "eve_measure", **{"class": "default"})
    rows, summary = backtest(desk, {"evidence": "required", "freshness": "1 min"})
    assert [(r.item, r.part) for r in rows] == [(early, "unjudgeable"), (stale, "unjudgeable")]
    assert summary["unjudgeable_because"] == {"nobody measured the capacity then": 2}
    assert fresh not in {r.item for r in rows}
    # A class that asked for evidence has it on record, missing or not.
    desk.define(replay_class="safe", evidence="required", freshness="5 min")
    desk.clock.advance(100)
    held, = each(desk, 1)  # fmt: skip
    rows, _ = backtest(
        desk, {"evidence": "required", "freshness": "1 min"}, since="2031-06-01 12:07Z"
    )
    assert would(rows) == [(held, "HOLD", "capacity_evidence_stale")]


def test_health_is_what_was_told_then(desk: Desk) -> None:
    before, = each(desk, 1)  # fmt: skip
    desk.call("t_operator", "eve_set_health", dependency="mail", health="unhealthy")
    during, = each(desk, 1)  # fmt: skip
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
    each(desk, 1)
    rows, _ = backtest(desk, {"dependencies": ["mail"]})
    assert would(rows) == [(during, "HOLD", "dependency_unhealthy")]
    rows, _ = backtest(desk, {"dependencies": ["mail"], "evidence": "none"})
    assert before not in {row.item for row in rows}


def test_keys_merge_with_what_waited_then(desk: Desk) -> None:
    first, second = each(desk, 2, coalescing_key="k")
    (other,) = each(desk, 1, coalescing_key="l")
    lease = desk.lease(item=first)
    desk.clock.advance(1)
    (third, fourth) = each(desk, 2, coalescing_key="k")
    rows, _ = backtest(desk, {"coalesce": "absorb"})
    merged = ("COALESCE", "equivalent_waiting")
    assert would(rows) == [(second, *merged), (fourth, *merged)]
    assert [row.because["survivor"] for row in rows] == [first, third]
    assert other not in {row.item for row in rows}
    assert desk.complete(lease).phase == "verified"


def test_the_age_of_what_waited_then_is_folded_from_the_ledger(desk: Desk) -> None:
    (first,) = each(desk, 1)
    desk.clock.advance(100)
    (late,) = each(desk, 1)
    desk.complete(desk.lease(item=first))
    desk.clock.advance(1)
    (after,) = each(desk, 1)
    rows, _ = backtest(desk, {"age_limit": "1 min", "age_action": "reject"})
    assert would(rows) == [(late, "REJECT", "age_budget_exceeded")]
    assert after not in {row.item for row in rows}
    rows, _ = backtest(desk, {"age_limit": "1 min"})
    assert would(rows) == [(late, "HOLD", "age_budget_exceeded")]


def test_size_submitters_and_replay_class_are_judged_again(desk: Desk) -> None:
    desk.define(replay_class="safe", payload_limit=20)
    item = desk.item(payload={"a": "x"})
    operators = desk.item(role="t_operator")
    large = desk.submit(payload={"a": "x" * 30}).submission
    rows, _ = backtest(desk, {"payload_limit": 5})
    assert would(rows) == [(item, "REJECT", "payload_too_large")]
    rows, _ = backtest(desk, {"payload_limit": 20, "submitters": ["t_producer"]})
    assert would(rows) == [(operators, "REJECT", "class_not_authorised")]
    rows, _ = backtest(desk, {"payload_limit": 50})
    assert [(r.submission, r.would_decision) for r in rows] == [(large, "ADMIT")]
    rows, _ = backtest(desk, {"payload_limit": 20, "replay_class": "unknown"})
    assert would(rows) == [(item, "HOLD", "replay_class_unknown"),
                           (operators, "HOLD", "replay_class_unknown")]  # fmt: skip


def test_a_payload_that_was_not_kept_is_not_judged(desk: Desk) -> None:
    """Never skipped: it is a row of its own, and counted."""
    desk.define(replay_class="safe", item_limit=1)
    item = desk.item()
    refused = desk.submit()
    rows, summary = backtest(desk, {"item_limit": 5, "schema": {"type": "object"}})
    (unjudgeable,) = [row for row in rows if row.part == "unjudgeable"]
    assert (unjudgeable.submission, unjudgeable.would_decision) == (refused.submission, None)
    assert unjudgeable.because == {"reason": "the payload was not kept"}
    assert summary["unjudgeable_because"] == {"the payload was not kept": 1}
    assert [row.item for row in rows if row.part == "change"] in ([], [item])


def test_more_than_at_most_is_left_out_and_said(desk: Desk) -> None:
    items = each(desk, 5)
    rows, summary = backtest(desk, {"replay_class": "unknown"}, at_most=2)
    assert [row.item for row in rows] == items[:2]
    assert (summary["judged"], summary["left_out"]) == (2, 3)


def test_the_candidate_is_checked_as_a_definition_is(desk: Desk) -> None:
    with desk.refused("22023"):
        backtest(desk, {"attempts": 0})
    with desk.refused("22023"):
        desk.calls("t_operator", "eve_backtest", **{"class": "default"}, policy={}, since=START)
    with desk.refused("P0002"):
        backtest(desk, None, **{"class": "nothing"})
    with desk.refused("42501"):
        desk.calls(
            "t_human", "eve_backtest", **{"class": "default"}, since=START,
            policy={"replay_class": "safe"},
        )  # fmt: skip


def test_a_backtest_waits_for_nobody_and_holds_nobody_up(desk: Desk) -> None:
    """It locks nothing: no transaction id, no row lock, whoever holds the queue's own row."""
    each(desk, 1)
    locker = desk.db.connect("postgres", autocommit=False)
    reader = desk.db.connect("t_operator", autocommit=False)
    try:
        locker.execute("select from eve.work_item for update")
        reader.execute("set local lock_timeout = '1s'")
        reader.execute(
            "select * from eve_backtest(%s, 'default', '{\"replay_class\": \"safe\"}', %s)",
            [desk.queue, START],
        )
        assert reader.execute("select pg_current_xact_id_if_assigned()").fetchall()[0][0] is None
        assert (
            reader.execute(
                "select count(*) from pg_locks where pid = pg_backend_pid() and granted"
                " and mode <> 'AccessShareLock' and locktype = 'relation'"
            ).fetchall()[0][0]
            == 0
        )
    finally:
        locker.close()
        reader.close()


def test_it_says_until_when_it_judged(desk: Desk) -> None:
    each(desk, 3)
    last = desk.calls(
        "t_operator", "eve_backtest", **{"class": "default"}, since=START,
        policy={"replay_class": "safe"},
    )[-1]  # fmt: skip
    assert last.at == at("2031-06-01 12:00") + timedelta(seconds=2)


def test_one_live_item_an_effect_is_judged_by_who_lived_then(desk: Desk) -> None:
    first, second = each(desk, 2, effect_identity="pay:1")
    (other,) = each(desk, 1, effect_identity="pay:2")
    rows, _ = backtest(desk, {"effect_unique": True})
    assert would(rows) == [(second, "HOLD", "effect_already_live")]
    desk.complete(desk.lease(item=first))
    desk.clock.advance(1)
    (third,) = each(desk, 1, effect_identity="pay:1")
    desk.complete(desk.lease(item=other))
    rows, _ = backtest(desk, {"effect_unique": True})
    assert would(rows) == [(second, "HOLD", "effect_already_live"),
                           (third, "HOLD", "effect_already_live")]  # fmt: skip
    rows, _ = backtest(desk, {"effect_unique": True, "payload_limit": 0})
    assert {row.would_reason for row in rows} == {"payload_too_large"}


def test_an_effect_that_was_observed_by_then_is_not_asked_for_again(desk: Desk) -> None:
    desk.define(replay_class="safe", completion_test="effects")
    (first,) = each(desk, 1, effect_identity="pay:1", expected_effects=["pay:1"])
    (before,) = each(desk, 1, effect_identity="pay:1")
    lease = desk.lease(item=first)
    desk.hold("eve_observe_effect", lease, effect_identity="pay:1", evidence={"kind": "receipt"})
    desk.complete(lease)
    desk.clock.advance(1)
    (after,) = each(desk, 1, effect_identity="pay:1")
    rows, _ = backtest(desk, {"effect_unique": True, "completion_test": "effects"})
    assert would(rows) == [(before, "HOLD", "effect_already_live"),
                           (after, "REJECT", "effect_already_observed")]  # fmt: skip


def test_what_a_key_replaces_makes_room(desk: Desk) -> None:
    first, second, third = each(desk, 3, coalescing_key="k")
    rows, _ = backtest(desk, {"coalesce": "replace", "item_limit": 1})
    assert would(rows) == []
    rows, _ = backtest(desk, {"coalesce": "none", "item_limit": 1})
    assert [row.item for row in rows] == [second, third]
    assert first < second
    desk.define(replay_class="safe", coalesce="replace", item_limit=4)
    desk.clock.set("2031-06-01 13:00Z")
    each(desk, 4, coalescing_key="l")
    rows, _ = backtest(desk, {"coalesce": "replace", "item_limit": 4}, since="2031-06-01 13:00Z")
    assert would(rows) == []


@pytest.mark.parametrize("rule", ["absorb", "replace"])
def test_a_rule_of_merging_replays_to_itself(desk: Desk, rule: str) -> None:
    policy: dict[str, Any] = {"coalesce": rule, "item_limit": 2}
    desk.define(replay_class="safe", **policy)
    for key in ("a", "b", "a", "c", "b", "a"):
        desk.submit(coalescing_key=key)
        desk.clock.advance(1)
    desk.submit(coalescing_key="a", after=["nothing"])
    desk.submit(coalescing_key="a", operation_identity="another")
    rows, summary = backtest(desk, policy)
    assert would(rows) == []
    assert summary["judged"] == 8
