"""E-046 … E-048: who owns an end may write it, and nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.database import Database
from support.desk import Desk

OTHERS = ["t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"]


@pytest.mark.parametrize("role", OTHERS)
def test_e_046_rejecting_is_refused_to_everybody_but_a_human(desk: Desk, role: str) -> None:
    """Whether the item waits, runs or is parked; the refusal names the role that may."""
    items = [desk.quarantined(), desk.item(), desk.lease(item=desk.item()).item]
    for item in items:
        before = desk.kinds(item)
        with desk.refused("terminal_state_not_owned") as refused:
            desk.call(role, "eve_reject", item=item, reason="no")
        detail = desk.db.value("select %s::jsonb", [refused.error.diag.message_detail])
        assert (detail["code"], detail["item"]) == ("terminal_state_not_owned", item)
        assert detail["needs"] == "eve_human"
        assert desk.kinds(item) == before


@pytest.mark.parametrize("phase", ["held", "ready", "leased", "uncertain", "completed",
                                   "quarantined"])  # fmt: skip
def test_a_human_rejects_whatever_is_not_ended(desk: Desk, phase: str) -> None:
    desk.define("judged", preset="agent_task", replay_class="safe")
    make: dict[str, Callable[[], int]] = {
        "held": lambda: desk.item(after=["never"]),
        "ready": desk.item,
        "leased": lambda: int(desk.lease(item=desk.item()).item),
        "uncertain": desk.uncertain,
        "completed": lambda: int(
            desk.complete(desk.lease(item=desk.item(**{"class": "judged"}))).item
        ),
        "quarantined": desk.quarantined,
    }
    item = make[phase]()
    assert desk.phase(item) == phase
    answer = desk.call("t_human", "eve_reject", item=item, reason="not wanted")
    assert (answer.phase, desk.phase(item)) == ("rejected", "rejected")
    assert desk.events(item)[-1].reason == "not wanted"
    assert desk.live() == 0
    with desk.refused("55000") as refused:
        desk.call("t_human", "eve_reject", item=item, reason="again")
    detail = desk.db.value("select %s::jsonb", [refused.error.diag.message_detail])
    assert detail["phase"] == "rejected"


@pytest.mark.parametrize("role", OTHERS)
def test_e_047_unparking_is_refused_to_everybody_but_a_human(desk: Desk, role: str) -> None:
    item = desk.quarantined()
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_unpark", item=item, extra_attempts=5)
    assert (desk.phase(item), desk.state(item).allowance) == ("quarantined", 0)


@pytest.mark.parametrize("role", ["t_producer", "t_worker", "t_operator", "t_human", "t_auditor"])
def test_e_048_verified_is_gated_by_a_capability(desk: Desk, role: str) -> None:
    """No kind of actor can name its way into it, a human included."""
    desk.define("judged", preset="agent_task", replay_class="safe")
    item = desk.item(**{"class": "judged"})
    assert desk.complete(desk.lease(item=item)).phase == "completed"
    with desk.refused("terminal_state_not_owned") as refused:
        desk.call(role, "eve_verify", item=item)
    detail = desk.db.value("select %s::jsonb", [refused.error.diag.message_detail])
    assert detail["needs"] == "eve_verifier"
    with desk.refused("terminal_state_not_owned"):
        desk.call(role, "eve_settle_import", decision=1, work_id="done elsewhere")
    assert desk.phase(item) == "completed"
    assert desk.call("t_verifier", "eve_verify", item=item).phase == "verified"


def test_e_048_the_capability_opens_it_to_any_kind_of_actor(desk: Desk) -> None:
    """A worker with the verifier's role and access row may verify, but not what it held."""
    db = desk.db
    if not db.value("select 1 from pg_roles where rolname = 't_both'"):
        db.rows("create role t_both login in role eve_worker, eve_verifier")
    desk.define("judged", preset="agent_task", replay_class="safe")
    other = desk.item(**{"class": "judged"})
    desk.complete(desk.lease(item=other))
    assert desk.call("t_both", "eve_verify", item=other).phase == "verified"
    own = desk.item(**{"class": "judged"})
    desk.complete(desk.lease(role="t_both", item=own), role="t_both")
    with desk.refused("terminal_state_not_owned"):
        desk.call("t_both", "eve_verify", item=own)
    assert desk.phase(own) == "completed"
    desk.define("trusting", preset="agent_task", replay_class="safe", verifier_not_holder=False)
    third = desk.item(**{"class": "trusting"})
    desk.complete(desk.lease(role="t_both", item=third), role="t_both")
    assert desk.call("t_both", "eve_verify", item=third).phase == "verified"


def test_the_engine_verifies_only_where_the_class_grants_it(desk: Desk) -> None:
    desk.define("report", replay_class="safe", engine_verifies=False)
    item = desk.item(**{"class": "report"})
    assert desk.complete(desk.lease(item=item)).phase == "completed"
    reviewed = desk.item(completion_test="review")
    assert desk.complete(desk.lease(item=reviewed)).phase == "completed"
    assert desk.complete(desk.lease(item=desk.item())).phase == "verified"


@pytest.mark.parametrize("verdict", ["open", "declined", "policy"])
def test_an_import_needs_a_decision_that_a_human_accepted(desk: Desk, verdict: str) -> None:
    kind = "policy" if verdict == "policy" else "import"
    asked = desk.call("t_operator", "eve_propose", kind=kind)
    if verdict == "declined":
        desk.call("t_human", "eve_decline", decision=asked.decision)
    elif verdict == "policy":
        desk.call("t_human", "eve_accept", decision=asked.decision)
    with desk.refused("terminal_state_not_owned"):
        desk.call("t_verifier", "eve_settle_import", decision=asked.decision, work_id="x")


@pytest.mark.parametrize("phase", ["verified", "cancelled"])
def test_an_import_settles_what_another_system_finished(desk: Desk, phase: str) -> None:
    child = desk.item(after=["old"])
    asked = desk.call("t_operator", "eve_propose", kind="import")
    desk.call("t_human", "eve_accept", decision=asked.decision)
    answer = desk.call(
        "t_verifier", "eve_settle_import", decision=asked.decision, work_id="old",
        payload={"n": 1}, phase=phase, evidence={"from": "elsewhere"},
    )  # fmt: skip
    assert (answer.phase, desk.kinds(answer.item)) == (phase, ["imported"])
    assert desk.phase(child) == {"verified": "ready", "cancelled": "held"}[phase]
    with desk.refused("42710"):
        desk.call("t_verifier", "eve_settle_import", decision=asked.decision, work_id="old")
    with desk.refused("55000"):
        desk.call("t_human", "eve_reject", item=answer.item, reason="no")


# --- who is who


def test_a_superuser_without_explicit_membership_is_not_human(desk: Desk) -> None:
    """Nor a verifier: with an access row, with membership through another role, as owner."""
    db = desk.db
    item = desk.quarantined()
    for role in ("postgres", "eve_human"):
        for capability in ("human", "verifier", "auditor"):
            desk.call("t_operator", "eve_grant_access", role=role, capability=capability)
    for verb, more in (("eve_unpark", {}), ("eve_reject", {"reason": "no"})):
        with db.refused("terminal_state_not_owned"):
            desk.call("postgres", verb, item=item, **more)
    with db.refused("terminal_state_not_owned"):
        desk.call("postgres", "eve_resume")
    if not db.value("select 1 from pg_roles where rolname = 't_super'"):
        db.rows("create role t_super login superuser")
        db.rows("create role t_team in role eve_human")
        db.rows("grant t_team to t_super")
    with db.refused("P0002"):  # a stranger, however super
        desk.call("t_super", "eve_unpark", item=item)
    desk.call("t_operator", "eve_grant_access", role="t_super", capability="human")
    with db.refused("P0002"):
        desk.call("t_super", "eve_unpark", item=item)
    db.rows("grant eve_human to t_super")
    try:
        assert desk.call("t_super", "eve_unpark", item=item).phase == "ready"
        event = desk.events(item)[-1]
        assert (event.actor, event.principal) == ("t_super", "t_super")
    finally:
        db.rows("revoke eve_human from t_super")
    with db.refused("P0002"):
        desk.call("t_super", "eve_reject", item=item, reason="no")


def test_the_installer_is_made_everything_but_human_and_verifier(shared: Database) -> None:
    granted = shared.rows(
        "select r.rolname from pg_auth_members as m join pg_roles as r on r.oid = m.roleid"
        " where m.member = 'postgres'::regrole and r.rolname ^@ 'eve_' order by 1"
    )
    assert [row.rolname for row in granted] == [
        "eve_auditor", "eve_operator", "eve_producer", "eve_worker",
    ]  # fmt: skip


def test_a_creator_gets_four_capabilities_and_never_human(shared: Database) -> None:
    shared.make_queue("created", access=False)
    rows = shared.rows(
        "select a.role, a.capability from eve.access as a join eve.queue as q using (queue_id)"
        " where q.name = 'created' order by 2"
    )
    assert [tuple(row) for row in rows] == [
        ("t_operator", name) for name in ("auditor", "operator", "producer", "worker")
    ]


def test_both_doors_must_be_open(desk: Desk) -> None:
    """The outer role without the access row, and the row without the role, are worth nothing."""
    db = desk.db
    if not db.value("select 1 from pg_roles where rolname = 't_outer'"):
        db.rows("create role t_outer login in role eve_human")
        db.rows("create role t_inner login")
    item = desk.quarantined()
    alone = Desk(db, db.make_queue(f"{desk.queue}-alone", access=False))
    with db.refused("P0002"):
        alone.call("t_outer", "eve_halt")
    desk.call("t_operator", "eve_grant_access", role="t_inner", capability="human")
    with db.refused("42501"):
        desk.call("t_inner", "eve_unpark", item=item)
    alone.call("t_operator", "eve_grant_access", role="t_outer", capability="human")
    assert alone.call("t_outer", "eve_halt").done
    alone.call("t_operator", "eve_revoke_access", role="t_outer", capability="human")
    with db.refused("P0002"):
        alone.call("t_outer", "eve_resume")


def test_a_capability_is_not_another(desk: Desk) -> None:
    """Who is known in the queue, but not for this, is told so: 42501, with what it needs."""
    db = desk.db
    if not db.value("select 1 from pg_roles where rolname = 't_many'"):
        db.rows("create role t_many login in role eve_worker, eve_operator, eve_human")
    alone = Desk(db, db.make_queue(f"{desk.queue}-alone", access=False))
    alone.call("t_operator", "eve_grant_access", role="t_many", capability="worker")
    with db.refused("42501") as refused:
        alone.call("t_many", "eve_halt")
    assert refused.error.diag.message_hint
    assert db.value("select %s::jsonb", [refused.error.diag.message_detail]) == {
        "needs": ["operator", "human"]
    }
    with db.refused("terminal_state_not_owned"):
        alone.call("t_many", "eve_resume")
