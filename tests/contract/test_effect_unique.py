"""One live item an effect identity, where the class says so: the others wait."""

from __future__ import annotations

import pytest

from support.desk import Desk

UNIQUE = {"replay_class": "reconcilable", "preset": "effect", "effect_unique": True,
          "backoff_base": "0 s"}  # fmt: skip


@pytest.fixture
def unique(desk: Desk) -> Desk:
    desk.define("default", **UNIQUE)
    return desk


def owner(desk: Desk, effect: str = "e") -> int | None:
    rows = desk.db.rows(
        "select item from eve.live_effect where queue_id = %s and effect_identity = %s",
        [desk.id, effect],
    )
    return rows[0].item if rows else None


def wait_for(desk: Desk, effect: str = "e") -> int:
    answer = desk.submit(effect_identity=effect)
    assert (answer.decision, answer.reason) == ("HOLD", "effect_already_live")
    return int(answer.item)


def test_the_second_waits_for_the_first_and_says_for_which_effect(unique: Desk) -> None:
    first, second = unique.item(effect_identity="e"), wait_for(unique)
    hold = unique.db.row(
        "select h.trigger, h.ref, h.owner from eve.hold as h where queue_id = %s and item = %s",
        [unique.id, second],
    )
    assert tuple(hold) == ("effect", "e", "queue")
    assert owner(unique) == first
    assert unique.submit(effect_identity="another").decision == "ADMIT"
    assert (
        unique.call("t_worker", "eve_acquire", worker="w", item=second).refusal == "not_acquirable"
    )


def test_a_class_that_does_not_say_so_has_no_such_rule(desk: Desk) -> None:
    assert {desk.submit(effect_identity="e").decision for _ in range(3)} == {"ADMIT"}
    assert owner(desk) is None


def test_a_cancelled_first_releases_exactly_one(unique: Desk) -> None:
    first, second, third = unique.item(effect_identity="e"), wait_for(unique), wait_for(unique)
    unique.call("t_operator", "eve_cancel", item=first)
    assert (unique.phase(second), unique.phase(third)) == ("ready", "held")
    assert owner(unique) == second
    unique.call("t_human", "eve_reject", item=second, reason="no")
    assert owner(unique) == third
    assert unique.phase(third) == "ready"


@pytest.mark.parametrize("test", ["report", "effects"])
def test_a_verified_first_releases_or_ends_the_others(desk: Desk, test: str) -> None:
    """Observed: nothing is left to do. Only reported: the engine does not know, and lets one go."""
    desk.define("default", **UNIQUE, completion_test=test)
    first, second, third = desk.item(effect_identity="e"), wait_for(desk), wait_for(desk)
    lease = desk.lease(item=first)
    if test == "effects":
        desk.hold("eve_observe_effect", lease)
    assert desk.complete(lease).phase == "verified"
    phases = (desk.phase(second), desk.phase(third))
    if test == "report":
        assert phases == ("ready", "held")
        return
    assert phases == ("cancelled", "cancelled")
    assert desk.state(second).reason == "effect_already_observed"
    assert desk.kinds(second) == ["held", "cancelled"]
    assert desk.submit(effect_identity="e").reason == "effect_already_observed"


def test_a_1_052_an_uncertain_item_is_live(unique: Desk) -> None:
    """A loss is no evidence that nothing happened: nobody else may try."""
    first = unique.item(effect_identity="e")
    lease = unique.lease(item=first)
    unique.hold("eve_start_effect", lease)
    second = wait_for(unique)
    unique.lapse(lease)
    unique.sweep()
    assert (unique.phase(first), unique.phase(second)) == ("uncertain", "held")
    assert unique.submit(effect_identity="e").reason == "effect_already_live"
    unique.call("t_verifier", "eve_reconcile", item=first, finding="absent")
    assert (unique.phase(first), unique.phase(second)) == ("ready", "held")
    unique.call("t_operator", "eve_cancel", item=first)
    assert unique.phase(second) == "ready"


def test_a_1_071_an_effect_found_by_reconciliation_ends_those_that_waited(unique: Desk) -> None:
    first = unique.uncertain(effect_identity="e")
    waiting = [wait_for(unique) for _ in range(40)]
    unique.call("t_verifier", "eve_reconcile", item=first, finding="observed")
    assert {unique.phase(item) for item in waiting} == {"cancelled"}


def test_quarantined_and_completed_items_are_live(unique: Desk) -> None:
    unique.define("default", **UNIQUE | {"completion_test": "review", "engine_verifies": False})
    unique.quarantined(effect_identity="q")
    assert unique.submit(effect_identity="q").reason == "effect_already_live"
    lease = unique.lease(item=unique.item(effect_identity="c"))
    unique.complete(lease)
    second = wait_for(unique, "c")
    unique.call("t_verifier", "eve_verify", item=lease.item)
    assert unique.phase(second) == "ready"


def test_what_waits_for_more_takes_the_effect_and_waits_on(unique: Desk) -> None:
    first = unique.item(effect_identity="e")
    second = unique.submit(effect_identity="e", after=["nobody"]).item
    third = wait_for(unique)
    assert unique.holds(second) == ["effect_already_live", "unknown_dependency"]
    unique.call("t_operator", "eve_cancel", item=first)
    assert unique.holds(second) == ["unknown_dependency"]
    assert (owner(unique), unique.phase(third)) == (second, "held")


def test_what_waited_too_long_passes_the_effect_on(unique: Desk) -> None:
    unique.clock.set("2031-01-01 00:00Z")
    first = unique.item(effect_identity="e")
    for _ in range(3):
        unique.submit(effect_identity="e", value_until="2031-01-01 00:01Z")
    last = wait_for(unique)
    unique.clock.advance(120)
    unique.call("t_operator", "eve_cancel", item=first)
    assert owner(unique) == last
    assert unique.phase(last) == "ready"


def test_a_refused_name_gives_the_effect_back(unique: Desk) -> None:
    unique.item(work_id="a", effect_identity="other")
    assert unique.submit(work_id="a", effect_identity="e").reason == "work_id_taken"
    assert unique.submit(effect_identity="e").decision == "ADMIT"


def test_a_revision_lets_nobody_go_twice(unique: Desk) -> None:
    """An item keeps the rule it was submitted under."""
    unique.item(effect_identity="e")
    second = wait_for(unique)
    unique.define("default", **UNIQUE | {"effect_unique": False})
    unique.sweep()
    assert unique.phase(second) == "held"


def test_a_lost_trigger_is_found_by_the_sweep(unique: Desk) -> None:
    first, second = unique.item(effect_identity="e"), wait_for(unique)
    unique.call("t_operator", "eve_cancel", item=first)
    unique.call("t_operator", "eve_cancel", item=second)
    assert owner(unique) is None
    third = unique.item(effect_identity="e")
    fourth = wait_for(unique)
    unique.db.rows("update eve.live_effect set item = null where queue_id = %s", [unique.id])
    assert [fault["fault"] for fault in unique.audit().faults] == ["live effect"]
    unique.db.rows("update eve.live_effect set item = %s where queue_id = %s", [third, unique.id])
    assert (unique.sweep().rechecked, unique.phase(fourth)) == (0, "held")


def test_rebuilt_from_the_ledger(unique: Desk) -> None:
    first, second = unique.item(effect_identity="e"), wait_for(unique)
    unique.db.rows("delete from eve.live_effect where queue_id = %s", [unique.id])
    assert not unique.audit().clean
    assert unique.call("t_operator", "eve_rebuild").clean
    assert owner(unique) == first
    unique.call("t_operator", "eve_cancel", item=first)
    assert unique.phase(second) == "ready"


def test_free_identities_are_forgotten(unique: Desk) -> None:
    for number in range(20):
        unique.call("t_operator", "eve_cancel", item=unique.item(effect_identity=f"e{number}"))
    unique.sweep()
    assert not unique.db.value("select count(*) from eve.live_effect where queue_id = %s",
                               [unique.id])  # fmt: skip
