"""E-038 … E-041, and contract §9: declared edges, waivers, unknown ids, cycles."""

from __future__ import annotations

import pytest

from support.desk import Desk


def test_e_038_every_dependency_must_be_verified(desk: Desk) -> None:
    """Each of them, and verified: reported and completed are not enough."""
    desk.define("judged", preset="agent_task", replay_class="safe")
    parents = [
        desk.item(work_id=name, **{"class": kind})
        for name, kind in (("a", "default"), ("b", "judged"), ("c", "default"))
    ]
    child = desk.submit(after=["a", "b", "c"])
    assert (child.decision, child.reason) == ("HOLD", "dependency_not_ready")
    states = []
    for parent in parents:
        refused = desk.acquire(item=child.item)
        assert (refused.granted, refused.refusal) == (False, "dependency_not_ready")
        states.append(refused.detail["open"])
        desk.complete(desk.lease(item=parent))
    assert states == [["a", "b", "c"], ["b", "c"], ["b", "c"]]
    assert desk.acquire(item=child.item).detail["open"] == ["b"]
    desk.call("t_verifier", "eve_verify", item=parents[1])
    assert desk.phase(child.item) == "ready"
    assert desk.events(child.item)[-1].kind == "released"
    assert desk.lease(item=child.item).granted


@pytest.mark.parametrize("end", ["rejected", "cancelled", "expired", "dead"])
def test_e_038_an_end_that_is_not_verified_keeps_blocking(desk: Desk, end: str) -> None:
    """But for edges that say that any end will do."""
    desk.clock.set("2031-06-01 12:00Z")
    if end == "dead":
        parent = desk.quarantined(work_id="a")
    else:
        parent = desk.item(work_id="a", deadline="2031-06-02 12:00Z")
    child = desk.item(after=["a"])
    loose = desk.item(after_ended=["a"])
    if end == "rejected":
        desk.call("t_human", "eve_reject", item=parent, reason="no")
    elif end == "cancelled":
        desk.call("t_producer", "eve_cancel", item=parent)
    else:
        desk.clock.set("2031-06-02 12:00Z" if end == "expired" else "2031-08-01 12:00Z")
        desk.sweep()
    assert desk.phase(parent) == end
    assert (desk.phase(child), desk.phase(loose)) == ("held", "ready")
    assert desk.acquire(item=child).refusal == "dependency_not_ready"
    late = desk.submit(after=["a"])
    assert (late.decision, late.reason) == ("HOLD", "dependency_not_ready")
    assert desk.submit(after_ended=["a"]).decision == "ADMIT"


def test_an_edge_on_what_is_verified_already_is_closed(desk: Desk) -> None:
    desk.done(work_id="a")
    assert desk.submit(after=["a"]).decision == "ADMIT"
    assert desk.submit(after_ended=["a"]).decision == "ADMIT"


def test_e_039_a_waiver_that_a_human_accepted_counts(desk: Desk) -> None:
    desk.item(work_id="a")
    child = desk.item(after=["a"])
    asked = desk.call("t_worker", "eve_propose", kind="waiver", item=child, work_id="a")
    assert desk.acquire(item=child).refusal == "dependency_not_ready"
    answer = desk.call("t_human", "eve_accept", decision=asked.decision)
    assert (answer.item, answer.phase) == (child, "accepted")
    assert desk.phase(child) == "ready"
    edge = desk.call("t_auditor", "eve_item", item=child).dependencies[0]
    assert (edge["open"], edge["waiver"]) == (False, asked.decision)
    assert desk.lease(item=child).granted


@pytest.mark.parametrize(
    "role", ["t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"]
)
def test_e_039_a_waiver_accepted_by_no_human_does_not(desk: Desk, role: str) -> None:
    desk.item(work_id="a")
    child = desk.item(after=["a"])
    asked = desk.call("t_producer", "eve_propose", kind="waiver", item=child, work_id="a")
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_accept", decision=asked.decision)
    assert desk.acquire(item=child).refusal == "dependency_not_ready"


def test_e_039_nor_does_one_declined_expired_or_for_another_edge(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    for name in "ab":
        desk.item(work_id=name)
    child = desk.item(after=["a", "b"])
    declined = desk.call("t_worker", "eve_propose", kind="waiver", item=child, work_id="a")
    desk.call("t_human", "eve_decline", decision=declined.decision)
    with desk.refused("55000"):
        desk.call("t_human", "eve_accept", decision=declined.decision)
    expiring = desk.call("t_worker", "eve_propose", kind="waiver", item=child, work_id="a",
                         expires_at="2031-06-01 13:00Z")  # fmt: skip
    desk.clock.set("2031-06-01 13:00Z")
    with desk.refused("55000") as refused:
        desk.call("t_human", "eve_accept", decision=expiring.decision)
    assert refused.error.diag.message_hint
    other = desk.call("t_worker", "eve_propose", kind="waiver", item=child, work_id="b")
    desk.call("t_human", "eve_accept", decision=other.decision)
    assert desk.acquire(item=child).detail["open"] == ["a"]
    for item, name in ((child, "c"), (desk.item(), "a")):
        with desk.refused("P0002"):
            desk.call("t_worker", "eve_propose", kind="waiver", item=item, work_id=name)


def test_e_040_an_unknown_dependency_is_stored_held_and_refused(desk: Desk) -> None:
    child = desk.submit(after=["later"])
    assert (child.decision, child.reason) == ("HOLD", "unknown_dependency")
    refused = desk.acquire(item=child.item)
    assert (refused.granted, refused.refusal) == (False, "unknown_dependency")
    assert refused.detail["unknown"] == ["later"]
    assert not desk.acquire().granted


def test_an_unknown_dependency_becomes_known(desk: Desk) -> None:
    """And then it is waited for like any other, however it comes to be."""
    children = [desk.item(after=["later", "never"]), desk.item(after=["later"])]
    later = desk.item(work_id="later")
    assert [desk.holds(child) for child in children] == [
        ["dependency_not_ready", "unknown_dependency"],
        ["dependency_not_ready"],
    ]
    assert desk.acquire(item=children[1]).refusal == "dependency_not_ready"
    desk.complete(desk.lease(item=later))
    assert [desk.phase(child) for child in children] == ["held", "ready"]
    asked = desk.call("t_operator", "eve_propose", kind="import")
    desk.call("t_human", "eve_accept", decision=asked.decision)
    desk.call("t_verifier", "eve_settle_import", decision=asked.decision, work_id="never")
    assert desk.phase(children[0]) == "ready"


def test_an_unknown_dependency_is_waived(desk: Desk) -> None:
    child = desk.item(after=["never"])
    asked = desk.call("t_operator", "eve_propose", kind="waiver", item=child, work_id="never")
    desk.call("t_human", "eve_accept", decision=asked.decision)
    assert desk.lease(item=child).granted


def test_e_041_an_edge_to_itself_is_a_cycle(desk: Desk) -> None:
    answer = desk.submit(work_id="me", after=["me"])
    assert (answer.decision, answer.reason) == ("HOLD", "dependency_cycle")
    refused = desk.acquire(item=answer.item)
    assert (refused.granted, refused.refusal) == (False, "dependency_cycle")
    assert refused.detail["cycle"] == ["me"]


@pytest.mark.parametrize("length", [2, 3, 7])
def test_e_041_a_cycle_is_stored_held_and_refused(desk: Desk, length: int) -> None:
    """Each of its items, and one outside waits without being in it; one waiver opens it."""
    names = [f"n{k}" for k in range(length)]
    items = [desk.item(work_id=names[k], after=[names[k - 1]]) for k in range(length)]
    outside = desk.item(after=[names[0]])
    for item in items:
        refused = desk.acquire(item=item)
        assert (refused.granted, refused.refusal) == (False, "dependency_cycle")
        assert sorted(refused.detail["cycle"]) == names
    assert desk.acquire(item=outside).refusal == "dependency_not_ready"
    asked = desk.call("t_worker", "eve_propose", kind="waiver", item=items[0], work_id=names[-1])
    desk.call("t_human", "eve_accept", decision=asked.decision)
    for item in items:
        desk.complete(desk.lease(item=item))
    assert desk.phase(outside) == "ready"


def test_a_cycle_that_a_return_closes_is_found(desk: Desk) -> None:
    first = desk.item(work_id="a")
    desk.item(work_id="b", after=["a"])
    desk.hold("eve_return", desk.lease(item=first), after=["b"])
    assert desk.acquire(item=first).refusal == "dependency_cycle"


def test_a_diamond_is_no_cycle(desk: Desk) -> None:
    desk.item(work_id="top")
    for name in ("left", "right"):
        desk.item(work_id=name, after=["top"])
    desk.item(work_id="bottom", after=["left", "right", "top"])
    order = []
    while (lease := desk.acquire()).granted:
        order.append(lease.work_id)
        desk.complete(lease)
    assert order == ["top", "left", "right", "bottom"]


def test_dependencies_stay_inside_the_queue(desk: Desk) -> None:
    other = Desk(desk.db, desk.db.make_queue(f"{desk.queue}-other"))
    other.done(work_id="a")
    assert desk.submit(after=["a"]).reason == "unknown_dependency"


def test_edges_are_declared_once_and_fixed(desk: Desk) -> None:
    """Named twice is named once; the work_id of a child cannot be given away."""
    desk.item(work_id="a")
    child = desk.item(after=["a", "a"], work_id="child")
    assert len(desk.call("t_auditor", "eve_item", item=child).dependencies) == 1
    both = desk.item(after=["a"], after_ended=["a"])
    edges = desk.call("t_auditor", "eve_item", item=both).dependencies
    assert [(edge["work_id"], edge["needs"]) for edge in edges] == [("a", "verified")]
    assert desk.submit(work_id="child").reason == "work_id_taken"


def test_the_sweep_derives_edges_anew(desk: Desk) -> None:
    """A child whose release was lost, here by a superuser's hand, is found."""
    parent = desk.item(work_id="a")
    child = desk.item(after=["a"])
    desk.complete(desk.lease(item=parent))
    desk.spoiled = True
    other = desk.item(work_id="b")
    lost = desk.item(after=["b"])
    desk.db.rows("update eve.dependency set open = false where item = %s", [lost])
    desk.complete(desk.lease(item=other))
    assert (desk.phase(child), desk.phase(lost)) == ("ready", "held")
    desk.sweep()
    assert desk.phase(lost) == "ready"
