"""E-005, E-030, E-031: a keyed request takes effect once, on every verb that changes anything."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.database import Database, Row, call
from support.desk import Desk, changed
from support.world import World, build

WITHOUT_KEY = {  # each for its reason
    "eve_fence": "appends nothing, and its lock must be taken anew each time",
    "eve_fence_table": "a trigger is made once: the second time it exists (42710)",
    "eve_rebuild": "folds the same ledger again",
}
READS = {"eve_checks", "eve_statement",
         "eve_contract", "eve_item", "eve_history", "eve_stats", "eve_explain", "eve_replay",
         "eve_audit", "eve_backtest"}  # fmt: skip

# For every argument of every keyed verb, another value of its type that passes the first look.
OTHER: dict[str, Any] = {
    "item": 424242, "token": 424242, "decision": 424242, "items": [424242], "tokens": [424242],
    "results": [Jsonb({"another": 1})], "priority_class": 1, "slots": 7, "extra_attempts": 7,
    "max_items": 7, "ttl": "777 s", "request_retention": "70 days", "at_most": 7,
    "minimum_completion_margin": "777 s", "capability": "auditor", "durability": "platform",
    "replay_class": "reconcilable", "completion_test": "review", "preset": "effect",
    "disposition": "uncertain", "finding": "unavailable", "phase": "cancelled", "kind": "policy",
    "must_admit": True, "all_or_nothing": True, "reconcile": True, "default_pool": False,
    "evidence": Jsonb({"kind": "another"}), "spend": 7, "digest": "7" * 64,
    "under": "(424242,1)", "as_of": "1", "role": "t_worker",
    "after": ["another"], "after_ended": ["another"], "expected_effects": ["another"],
    "classes": ["another"],
    **dict.fromkeys(("not_before", "deadline", "value_until", "requested_at", "until", "expires_at",
                     "observed_at"), "2099-07-01 12:00Z"),
    "health": "unhealthy", "dependency": "another", "capacity": 7, "valid_for": "77 s",
    **dict.fromkeys(("payload", "policy", "subject", "answer", "result", "progress",
                     "checkpoint", "detail", "dependency_revisions"), Jsonb({"another": 1})),
}  # fmt: skip
OUTSIDE = {"queue", "idempotency_key", "worker"}  # the scope, the key, and a label
EXCLUSIVE = {  # verbs that name one of several things: the other name comes instead
    ("eve_cancel", "work_id"): "item",
    ("eve_cancel", "cancellation_identity"): "item",
    ("eve_pause", "pool"): "class",
    ("eve_unpause", "pool"): "class",
}
POLICY = {"eve_define_class": {"policy": Jsonb({"attempts": 7})}}


def keyed(db: Database) -> dict[str, list[str]]:
    rows = db.rows(
        "select proname, proargnames[:pronargs] as names from pg_proc"
        " where pronamespace = 'public'::regnamespace and proname ^@ 'eve_'"
        " and 'idempotency_key' = any (proargnames)"
    )
    return {row.proname: row.names for row in rows}


KEYED = sorted(
    {"eve_create_queue", "eve_define_class", "eve_define_pool", "eve_grant_access",
     "eve_revoke_access", "eve_submit", "eve_acquire", "eve_turn", "eve_renew", "eve_return",
     "eve_complete", "eve_complete_batch", "eve_fail", "eve_start_effect", "eve_observe_effect",
     "eve_reconcile", "eve_compensate", "eve_verify", "eve_settle_import", "eve_cancel",
     "eve_propose", "eve_accept", "eve_decline", "eve_approve_slots", "eve_reject", "eve_unpark",
     "eve_resume", "eve_halt", "eve_reprioritise", "eve_pause", "eve_unpause", "eve_new_epoch",
     "eve_sweep", "eve_recover", "eve_measure", "eve_set_health", "eve_recheck"}
)  # fmt: skip


def test_every_verb_that_changes_anything_takes_a_key(shared: Database) -> None:
    assert sorted(keyed(shared)) == KEYED
    verbs = shared.rows(
        "select proname from pg_proc where pronamespace = 'public'::regnamespace"
        " and proname ^@ 'eve_' and prorettype <> 'trigger'::regtype"
    )
    assert {row.proname for row in verbs} - set(KEYED) == READS | set(WITHOUT_KEY)


def plain(rows: list[Row]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row._asdict().items() if k != "replayed"} for row in rows]


@pytest.mark.parametrize("verb", KEYED)
def test_e_005_e_030_the_first_answer_is_given_again(world: World, verb: str) -> None:
    """Whatever was done in between, in transactions of their own; no event, no row changes."""
    db = world.db
    again = build_once(world, verb)
    role, arguments = again.valid(verb)
    arguments = {**arguments, "idempotency_key": "k"}
    first = db.calls(role, verb, **arguments)
    again.desk.clock.advance(3)
    before = again.desk.census()
    second = db.calls(role, verb, **arguments)
    third = db.calls(role, verb, **{**arguments, **relabelled(arguments)})
    assert plain(first) == plain(second) == plain(third)
    if hasattr(first[0], "replayed"):
        assert [row.replayed for row in first] == [False] * len(first)
        assert [row.replayed for row in second] == [True] * len(first)
    assert changed(before, again.desk.census()) == []


def relabelled(arguments: dict[str, Any]) -> dict[str, Any]:
    """A worker is a label: another one is the same request."""
    return {"worker": "another label"} if "worker" in arguments else {}


def build_once(world: World, verb: str) -> World:
    """A world of its own for each verb, since these calls stay."""
    db = world.db
    db.rows("drop table if exists public.output")
    db.clock.release()
    made = build(db, f"keyed-{verb}")
    made.desk.clock.set(made.leases["held"].expires_at)
    made.desk.clock.advance(-500)
    return made


@pytest.mark.parametrize("verb", KEYED)
def test_e_031_any_other_argument_is_a_conflict(world: World, verb: str) -> None:
    """Each argument is part of the request; the old result is not returned, nothing changes."""
    role, valid = world.valid(verb)
    faults = []
    for name in keyed(world.db)[verb]:
        if name in OUTSIDE:
            continue
        other = {**valid, name: POLICY.get(verb, {}).get(name, OTHER.get(name, "another"))}
        if instead := EXCLUSIVE.get((verb, name)):
            del other[instead]
        with world.rolled_back(role) as connection:
            call(connection, verb, **valid, idempotency_key="k")
            try:
                call(connection, verb, **other, idempotency_key="k")
            except psycopg.Error as error:
                if error.sqlstate != "VE401":
                    faults.append(f"{name}: {error.sqlstate} {error}")
                elif not error.diag.message_hint:
                    faults.append(f"{name}: no hint")
            else:
                faults.append(f"{name}: answered")
    assert faults == []


def test_e_031_another_verb_under_the_same_key_is_a_conflict(desk: Desk) -> None:
    lease = desk.lease(item=desk.item(), idempotency_key="k")
    for verb in ("eve_renew", "eve_complete", "eve_fail", "eve_return"):
        with desk.refused("idempotency_conflict"):
            desk.hold(verb, lease, idempotency_key="k")
    assert desk.kinds(lease.item) == ["admitted", "acquired"]


def test_a_key_belongs_to_a_queue_and_a_principal(desk: Desk) -> None:
    """Two principals may use the same one; logins under one principal share it."""
    other = Desk(desk.db, desk.db.make_queue(f"{desk.queue}-other"))
    mine = desk.submit(idempotency_key="k", work_id="a")
    assert desk.submit(role="t_operator", idempotency_key="k", work_id="b").item != mine.item
    assert other.submit(idempotency_key="k", work_id="c").work_id == "c"
    for login in ("t_worker", "t_worker2"):
        desk.call("t_operator", "eve_grant_access", role=login, capability="worker",
                  principal="team")  # fmt: skip
    first = desk.acquire(role="t_worker", idempotency_key="next")
    again = desk.acquire(role="t_worker2", idempotency_key="next")
    assert (again.item, again.token, again.replayed) == (first.item, first.token, True)
    assert desk.complete(again, role="t_worker2").accepted


def test_a_replayed_grant_brings_its_payload(desk: Desk) -> None:
    desk.item(payload={"n": 1})
    first = desk.lease(idempotency_key="k")
    again = desk.lease(idempotency_key="k")
    assert (again.payload, again.lease) == (first.payload, first.lease) == ({"n": 1}, first.lease)
    assert desk.live() == 1


def test_session_settings_make_no_other_request(desk: Desk) -> None:
    """Instants and intervals are compared as values, not as a session would write them."""
    item = desk.item()
    lease = desk.lease(item=item)
    arguments = {
        "queue": desk.queue, "item": item, "token": lease.token,
        "until": desk.clock.now().replace(microsecond=0, year=2040), "idempotency_key": "k",
    }  # fmt: skip
    first = desk.db.calls("t_worker", "eve_return", **arguments)[0]
    connection = desk.db.connect("t_worker")
    for setting in (
        "datestyle = 'sql, dmy'", "timezone = 'Asia/Kathmandu'", "intervalstyle = sql_standard",
        "extra_float_digits = -15", "bytea_output = escape",
    ):  # fmt: skip
        connection.execute(f"set {setting}".encode())
        again = connection.execute(
            "select version, replayed from eve_return(%(queue)s, %(item)s, %(token)s,"
            " until => %(until)s, idempotency_key => %(idempotency_key)s)",
            arguments,
        ).fetchone()
        assert again == (first.version, True)


LATER = {
    "fleet_halted": "halted", "not_acquirable": "parked by a pause",
    "concurrency_exhausted": "full", "dependency_not_ready": "waiting",
}  # fmt: skip


def test_refusals_that_say_later_and_empty_queues_are_not_kept(desk: Desk) -> None:
    """The key is free again: the same request may be granted next time."""
    retry = dict(desk.db.rows("select code, retry from eve.refusal where channel <> 'raised'"))
    assert {code for code, advice in retry.items() if advice == "later"} == set(LATER)
    assert not desk.acquire(idempotency_key="empty").granted
    first = desk.item(work_id="first")
    assert desk.acquire(idempotency_key="empty").granted
    second = desk.item(after=["first"])
    third = desk.item()
    assert desk.acquire(item=third, idempotency_key="full").refusal == "concurrency_exhausted"
    desk.complete(desk.db.row("select %s as item, 1 as token", [first]))
    assert desk.acquire(item=third, idempotency_key="full").granted
    desk.complete(desk.db.row("select %s as item, 1 as token", [third]))
    fourth = desk.item(work_id="fourth")
    fifth = desk.item(after=["fourth"])
    answer = desk.acquire(item=fifth, idempotency_key="waits")
    assert answer.refusal == "dependency_not_ready"
    desk.complete(desk.lease(item=fourth))
    assert desk.acquire(item=fifth, idempotency_key="waits").granted
    desk.complete(desk.db.row("select %s as item, 1 as token", [fifth]))
    desk.call("t_operator", "eve_halt")
    assert desk.acquire(idempotency_key="halted").refusal == "fleet_halted"
    desk.call("t_human", "eve_resume")
    desk.call("t_operator", "eve_pause", **{"class": "default"})
    assert desk.acquire(item=second, idempotency_key="paused").refusal == "not_acquirable"
    desk.call("t_operator", "eve_unpause", **{"class": "default"})
    assert desk.acquire(item=second, idempotency_key="halted").granted
    assert desk.db.value(
        "select count(*) from eve.request where queue_id = %s and answer is null", [desk.id]
    ) == 0  # fmt: skip


def test_every_other_refusal_is_kept(desk: Desk) -> None:
    """And given again even when its cause is gone: a new attempt takes a new key."""
    item = desk.quarantined()
    assert desk.acquire(item=item, idempotency_key="a").refusal == "quarantined"
    desk.call("t_human", "eve_unpark", item=item)
    again = desk.acquire(item=item, idempotency_key="a")
    assert (again.refusal, again.replayed) == ("quarantined", True)
    short = desk.acquire(item=item, ttl="1 s", idempotency_key="b")
    assert short.refusal == "lease_ttl_out_of_range"
    assert desk.acquire(item=item, ttl="1 s", idempotency_key="b").replayed
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    assert desk.acquire(pool="cloud", idempotency_key="c").refusal == "spend_not_approved"
    desk.approve("cloud", 1)
    assert desk.acquire(pool="cloud", idempotency_key="c").refusal == "spend_not_approved"
    unknown = desk.item(after=["nobody"])
    assert desk.acquire(item=unknown, idempotency_key="d").refusal == "unknown_dependency"
    assert desk.acquire(item=unknown, idempotency_key="d").replayed
    cycle = desk.item(work_id="me", after=["me"])
    assert desk.acquire(item=cycle, idempotency_key="e").refusal == "dependency_cycle"
    assert desk.acquire(item=cycle, idempotency_key="e").replayed
    rejected = desk.submit(work_id="me", idempotency_key="f")
    assert rejected.reason == "work_id_taken"
    replayed = desk.submit(work_id="me", idempotency_key="f")
    assert (replayed.submission, replayed.replayed) == (rejected.submission, True)


def test_a_raised_refusal_stores_nothing(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("stale_fence"):
        desk.call("t_worker", "eve_complete", item=lease.item, token=9, idempotency_key="k")
    with desk.refused("not_admitted"):
        desk.submit(deadline="2001-01-01Z", must_admit=True, idempotency_key="k")
    assert desk.complete(lease, idempotency_key="k").accepted


def test_keys_are_forgotten_after_the_queues_retention(desk: Desk) -> None:
    """Never sooner; then the same key is a first request."""
    desk.clock.set("2031-06-01 12:00Z")
    first = desk.submit(idempotency_key="k")
    desk.clock.set("2031-07-01 12:00Z")
    assert desk.sweep().forgotten == 0
    assert desk.submit(idempotency_key="k").item == first.item
    desk.clock.advance(1)
    assert desk.sweep().forgotten == 1
    assert desk.submit(idempotency_key="k").item != first.item


# --- a finish repeated after a lost answer, without any key


@pytest.mark.parametrize(
    ("verb", "arguments", "others"),
    [
        ("eve_complete", {"result": {"n": 1}}, [{"result": {"n": 2}}, {}, {"result": {"n": 1},
            "evidence": {"kind": "e"}}]),
        ("eve_complete", {}, [{"result": {"n": 1}}]),
        ("eve_fail", {"error": "broken"}, [{}, {"error": "broken", "disposition": "uncertain"},
            {"error": "broken", "detail": {"at": 1}}]),
        ("eve_return", {"reason": "later"}, [{}, {"reason": "later", "checkpoint": {"n": 1}},
            {"reason": "later", "until": "2099-01-01Z"}]),
    ],
)  # fmt: skip
def test_a_finish_repeated_gives_the_first_answer(
    desk: Desk, verb: str, arguments: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    lease = desk.lease(item=desk.item())
    first = desk.hold(verb, lease, **arguments)
    desk.clock.advance(100_000)
    before = desk.census()
    again = desk.hold(verb, lease, **arguments)
    assert plain([again]) == plain([first])
    assert (first.replayed, again.replayed) == (False, True)
    for other in others:
        with desk.refused("idempotency_conflict"):
            desk.hold(verb, lease, **other)
    for another in {"eve_complete", "eve_fail", "eve_return"} - {verb}:
        with desk.refused("idempotency_conflict"):
            desk.hold(another, lease)
    with desk.refused("not_lease_holder"):
        desk.hold(verb, lease, role="t_worker2", **arguments)
    assert changed(before, desk.census()) == []


def test_a_batch_repeated_gives_the_first_answers(desk: Desk) -> None:
    desk.approve("cloud", 3)
    for _ in range(3):
        desk.item()
    leases = desk.leases(3)
    arguments: dict[str, Any] = {
        "items": [x.item for x in leases], "tokens": [x.token for x in leases],
        "results": [Jsonb({"n": n}) for n in range(3)],
    }  # fmt: skip
    first = desk.calls("t_worker", "eve_complete_batch", **arguments)
    again = desk.calls("t_worker", "eve_complete_batch", **arguments)
    assert plain(first) == plain(again)
    assert all(row.replayed for row in again)
    other = desk.calls("t_worker", "eve_complete_batch", **{**arguments, "results": [Jsonb(0)] * 3})
    assert [row.refusal for row in other] == ["idempotency_conflict"] * 3
