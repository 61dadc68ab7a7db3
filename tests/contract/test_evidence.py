"""Evidence is a typed list, a class may require kinds of it, a completion says what it keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from support.database import Row
from support.desk import Desk

LIMITS = ["later durability", "recipient understanding", "legal sufficiency",
          "absence of unobserved side effects"]  # fmt: skip


def record(desk: Desk, item: int) -> dict[str, Any]:
    found = desk.call("t_auditor", "eve_item", item=item).completion
    assert isinstance(found, dict)
    return found


def effects(desk: Desk, **policy: Any) -> Row:
    desk.define("default", preset="effect", replay_class="reconcilable", **policy)
    return desk.lease(item=desk.item(operation_identity="ship", expected_effects=["b", "a"]))


def test_evidence_is_kept_as_a_list_in_one_form(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.complete(lease, evidence={
        "kind": "test", "command": "make test", "exit": 0, "uri": None,
        "at": "2031-01-01 02:00:00.5+02:00",
    })  # fmt: skip
    assert desk.events(lease.item)[-1].data["args"]["evidence"] == [{
        "kind": "test", "command": "make test", "exit": 0, "at": "2031-01-01T00:00:00.500000Z",
    }]  # fmt: skip
    again = desk.complete(lease, evidence=[{
        "kind": "test", "command": "make test", "exit": 0, "at": "2031-01-01T00:00:00.5Z",
    }])  # fmt: skip
    assert again.replayed


def test_no_evidence_and_an_empty_list_are_the_same(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.complete(lease, evidence=Jsonb([]))
    assert desk.complete(lease).replayed


def test_the_engine_does_not_verify_without_the_kinds_that_a_class_requires(desk: Desk) -> None:
    desk.define("default", replay_class="safe", evidence_kinds=["log", "test"])
    lease = desk.lease(item=desk.item())
    answer = desk.complete(lease, evidence={"kind": "log"})
    assert (answer.phase, answer.detail) == ("completed", {"missing_evidence": ["test"]})
    again = desk.complete(lease, evidence={"kind": "log"})
    assert (again.replayed, again.detail) == (True, {"missing_evidence": ["test"]})
    assert desk.complete(
        desk.lease(item=desk.item()), evidence=[{"kind": "log"}, {"kind": "test"}]
    ).phase == "verified"  # fmt: skip


def test_nor_does_a_verifier(desk: Desk) -> None:
    desk.define("default", replay_class="safe", evidence_kinds=["log", "test"])
    lease = desk.lease(item=desk.item())
    desk.complete(lease, evidence={"kind": "log"})
    with desk.refused("55000") as refused:
        desk.call("t_verifier", "eve_verify", item=lease.item)
    assert '"missing": ["test"]' in str(refused.caught[0].diag.message_detail)
    verified = desk.call("t_verifier", "eve_verify", item=lease.item, evidence={"kind": "test"})
    assert verified.phase == "verified"


@pytest.mark.parametrize("kind", ["log", "test"])
def test_kinds_count_over_the_whole_evidence_of_an_item(desk: Desk, kind: str) -> None:
    """What was given with an observation is there at its end, at reconciliation too."""
    lease = effects(desk, evidence_kinds=["log"])
    desk.hold("eve_observe_effect", lease, effect_identity="a", evidence={"kind": kind})
    desk.hold("eve_observe_effect", lease, effect_identity="b")
    assert desk.complete(lease).phase == ("verified" if kind == "log" else "completed")
    other = desk.uncertain()
    answer = desk.call(
        "t_verifier", "eve_reconcile", item=other, finding="observed", evidence={"kind": kind}
    )
    assert answer.phase == ("verified" if kind == "log" else "completed")


def test_the_last_missing_effect_completes_without_verifying_where_kinds_are_missing(
    desk: Desk,
) -> None:
    lease = effects(desk, evidence_kinds=["log"])
    assert desk.complete(lease).phase == "reported"
    for effect in ("a", "b"):
        answer = desk.call(
            "t_verifier", "eve_observe_effect", item=lease.item, effect_identity=effect
        )
    assert answer.phase == "completed"


def test_a_verifier_is_no_holder_under_another_role_of_the_same_principal(desk: Desk) -> None:
    desk.define("default", replay_class="safe", completion_test="review", engine_verifies=False,
                verifier_not_holder=True)  # fmt: skip
    for role, capability in (("t_worker", "worker"), ("t_verifier", "verifier")):
        desk.call(
            "t_operator", "eve_grant_access", role=role, capability=capability, principal="ann"
        )
    lease = desk.lease(item=desk.item())
    desk.complete(lease)
    with desk.refused("terminal_state_not_owned"):
        desk.call("t_verifier", "eve_verify", item=lease.item)


def test_a_1_077_to_a_1_084_a_completion_preserves_what_it_was_judged_by(desk: Desk) -> None:
    lease = effects(desk)
    for effect in ("a", "b"):
        desk.hold("eve_observe_effect", lease, effect_identity=effect)
    assert desk.complete(lease, result={"n": 1}).phase == "verified"
    kept = record(desk, lease.item)
    at = kept.pop("at")
    assert kept == {
        "operation": "ship",
        "execution": {
            "principal": "t_worker", "worker": "w", "token": lease.token, "attempt": 1,
        },
        "durable": ["event", "result"],
        "external": ["b", "a"],
        "observed": ["a", "b"],
        "test": "effects",
        "revision": lease.revision,
        "scope": "the effects of this item that were recorded as observed",
        "unresolved": [],
        "not_proven": LIMITS,
    }  # fmt: skip
    assert at
    last = desk.events(lease.item)[-1]
    assert last.data["record"] == kept
    assert last.revision == lease.revision


def test_a_1_084_what_stays_unresolved_is_named(desk: Desk) -> None:
    """The holder's report is the test: that a declared effect was not observed is said."""
    lease = desk.lease(item=desk.item(expected_effects=["a", "b"]))
    desk.hold("eve_observe_effect", lease, effect_identity="a")
    assert desk.complete(lease).phase == "verified"
    kept = record(desk, lease.item)
    assert (kept["test"], kept["observed"], kept["unresolved"]) == ("report", ["a"], ["b"])
    assert kept["scope"] == "the report of the holder under its lease"


def test_a_1_086_the_record_says_what_it_does_not_prove(desk: Desk) -> None:
    item = desk.done()
    assert record(desk, item)["not_proven"] == LIMITS


def test_a_1_083_a_reconciled_completion_names_its_scope(desk: Desk) -> None:
    desk.define("default", preset="effect", replay_class="reconcilable")
    item = desk.uncertain(effect_identity="e")
    desk.call("t_verifier", "eve_reconcile", item=item, finding="observed", scope="ledger of bank")
    kept = record(desk, item)
    assert (kept["scope"], kept["observed"], kept["unresolved"]) == ("ledger of bank", ["e"], [])
    assert kept["execution"]["attempt"] == 1


def test_a_verifier_s_record_names_the_execution_that_was_judged(desk: Desk) -> None:
    desk.define("default", replay_class="safe", completion_test="review", engine_verifies=False)
    lease = desk.lease(item=desk.item())
    desk.complete(lease)
    first = record(desk, lease.item)
    desk.clock.set(lease.expires_at - timedelta(seconds=1))
    desk.call("t_verifier", "eve_verify", item=lease.item)
    kept = record(desk, lease.item)
    assert kept["execution"] == first["execution"]
    assert (kept["test"], kept["scope"]) == ("review", "the judgement of a verifier")


def test_an_item_that_is_not_complete_has_no_record(desk: Desk) -> None:
    assert desk.call("t_auditor", "eve_item", item=desk.item()).completion is None


LOOKUP = {"authority": "manifest store", "observations": ["object", "matching manifest"]}


@pytest.mark.parametrize("loss", ["lapse", "eve_fail", "eve_return"])
def test_a1_051_reconcilable_work_names_its_record_and_what_must_be_observed(
    desk: Desk, loss: str
) -> None:
    unsaid = desk.define("other", replay_class="reconcilable", preset="effect", attempts=3)
    assert "10" in unsaid.detail["unanswered"]
    said = desk.define("default", replay_class="reconcilable", preset="effect", protection=LOOKUP)
    assert "10" not in said.detail["unanswered"]
    lease = desk.lease(item=desk.item())
    desk.hold("eve_start_effect", lease)
    if loss == "lapse":
        desk.lapse(lease)
        desk.sweep()
    else:
        desk.hold(loss, lease)
    last = desk.events(lease.item)[-1]
    assert (last.phase, last.data["lookup"], last.data["owner"]) == ("uncertain", LOOKUP, "queue")


@pytest.mark.parametrize(
    "protection", [{"observations": ["a"]}, {**LOOKUP, "observations": []},
                   {**LOOKUP, "observations": "a"}],
)  # fmt: skip
def test_observations_without_an_authority_are_no_answer(
    desk: Desk, protection: dict[str, Any]
) -> None:
    with desk.refused("22023"):
        desk.define("default", replay_class="reconcilable", protection=protection)
