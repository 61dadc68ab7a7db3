"""Contract §5, §6 and §11: halt and its settling, pauses, epochs, and a clock that steps back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.database import Connection, call
from support.desk import Desk
from support.world import World

EPOCH = 2**32


# --- halt


def test_a_halt_stops_acquisition_only(desk: Desk) -> None:
    """Live leases are named and may do everything; submissions go on; only a human resumes."""
    desk.approve("cloud", 2)
    item = desk.item()
    lease = desk.lease(item=item, worker="w7")
    halted = desk.call("t_operator", "eve_halt", reason="fire")
    assert (halted.done, halted.item, halted.phase) == (True, 0, "halted")
    assert halted.detail["settled"] is False
    (live,) = halted.detail["leases"]
    assert (live["item"], live["principal"], live["worker"]) == (item, "t_worker", "w7")
    other = desk.item()
    for answer in (desk.acquire(), desk.acquire(item=other), desk.acquire(max_items=5)):
        assert (answer.granted, answer.refusal) == (False, "fleet_halted")
        assert answer.retry_after > timedelta(0)
    desk.hold("eve_renew", lease)
    finish, acquire = desk.calls(
        "t_worker", "eve_turn", worker="w", items=[lease.item], tokens=[lease.token]
    )
    assert (finish.accepted, acquire.refusal) == (True, "fleet_halted")
    for role in ("t_producer", "t_worker", "t_verifier", "t_operator", "t_auditor"):
        with desk.refused("terminal_state_not_owned"):
            desk.call(role, "eve_resume")
    assert desk.call("t_human", "eve_resume").done
    assert not desk.call("t_human", "eve_resume").done
    assert desk.lease(item=other).granted
    assert [e.kind for e in desk.events(0)][-2:] == ["halted", "resumed"]


def test_a_halt_settles_when_no_earlier_transaction_is_left(desk: Desk) -> None:
    """Written, asked again for as_of, asked with it: settled once nobody older can commit."""
    desk.item()
    acquiring = desk.db.connect("t_worker", autocommit=False)
    lease = call(acquiring, "eve_acquire", queue=desk.queue, worker="slow")[0]
    assert lease.granted
    first = desk.call("t_human", "eve_halt")
    assert (first.done, first.detail["settled"]) == (True, False)
    assert "as_of" not in first.detail or first.detail["as_of"] is None
    second = desk.call("t_human", "eve_halt")
    as_of = second.detail["as_of"]
    assert (second.done, second.detail["settled"]) == (False, False)
    assert not desk.call("t_human", "eve_halt", as_of=as_of).detail["settled"]
    acquiring.commit()
    settled = desk.call("t_human", "eve_halt", as_of=as_of)
    assert (settled.detail["settled"], settled.detail["as_of"]) == (True, as_of)
    assert [row["item"] for row in settled.detail["leases"]] == [lease.item]
    assert desk.acquire().refusal == "fleet_halted"


@pytest.mark.parametrize("as_of", ["1", "3"])
def test_an_as_of_from_before_the_halt_settles_nothing(desk: Desk, as_of: str) -> None:
    """Invented, or kept from an earlier halt: it says nothing of those who began in between."""
    desk.call("t_human", "eve_halt")
    kept = desk.call("t_human", "eve_halt").detail["as_of"]
    assert desk.call("t_human", "eve_halt", as_of=kept).detail["settled"]
    desk.call("t_human", "eve_resume")
    desk.item()
    acquiring = desk.db.connect("t_worker", autocommit=False)
    assert call(acquiring, "eve_acquire", queue=desk.queue, worker="slow")[0].granted
    desk.call("t_human", "eve_halt")
    for old in (as_of, kept):
        answer = desk.call("t_human", "eve_halt", as_of=old).detail
        assert answer["settled"] is False
        assert answer["as_of"] != old
    acquiring.commit()
    assert desk.call("t_human", "eve_halt", as_of=answer["as_of"]).detail["settled"]


def test_an_as_of_that_lies_ahead_settles_nothing(desk: Desk) -> None:
    desk.call("t_human", "eve_halt")
    assert desk.call("t_human", "eve_halt", as_of="9" * 15).detail["settled"] is False


def test_no_halt_is_never_settled(desk: Desk) -> None:
    """The first call of a halt answers settled false, whatever as_of it brings."""
    assert desk.call("t_human", "eve_halt", as_of="1").detail["settled"] is False


# --- pause


def test_a_paused_class_is_not_acquirable(desk: Desk) -> None:
    desk.define("slow", replay_class="safe")
    item = desk.item(**{"class": "slow"})
    other = desk.item()
    assert desk.call("t_operator", "eve_pause", **{"class": "slow"}).done
    assert not desk.call("t_operator", "eve_pause", **{"class": "slow"}).done
    refused = desk.acquire(item=item)
    assert (refused.refusal, refused.detail["blocked"]) == ("not_acquirable", "class is paused")
    lease = desk.lease()
    assert lease.item == other
    desk.complete(lease)
    assert not desk.acquire().granted
    assert desk.call("t_operator", "eve_unpause", **{"class": "slow"}).done
    assert not desk.call("t_operator", "eve_unpause", **{"class": "slow"}).done
    assert desk.lease().item == item
    assert [e.kind for e in desk.events(0)][-2:] == ["paused", "unpaused"]


def test_a_paused_pool_is_not_acquirable(desk: Desk) -> None:
    desk.approve("cloud", 2, default_pool=False)
    item = desk.item()
    desk.call("t_operator", "eve_pause", pool="cloud", reason="cost")
    for refused in (desk.acquire(pool="cloud"), desk.acquire(pool="cloud", item=item)):
        assert (refused.refusal, refused.detail["blocked"]) == ("not_acquirable", "pool is paused")
    assert desk.events(0)[-1].reason == "cost"
    assert desk.acquire(pool="local").granted
    desk.call("t_operator", "eve_unpause", pool="cloud")
    desk.item()
    assert desk.acquire(pool="cloud").granted


def test_leases_go_on_in_what_is_paused(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.call("t_operator", "eve_pause", **{"class": "default"})
    desk.call("t_operator", "eve_pause", pool="local")
    desk.hold("eve_renew", lease)
    assert desk.complete(lease).accepted


def test_a_class_may_be_bound_to_pools(desk: Desk) -> None:
    desk.define("far", replay_class="safe", pools=["cloud"])
    desk.approve("cloud", 2, default_pool=False)
    item = desk.item(**{"class": "far"})
    refused = desk.acquire(item=item)
    assert refused.detail["blocked"] == "class may not run in this pool"
    assert not desk.acquire().granted
    assert desk.acquire(pool="cloud").item == item


def test_a_worker_gets_only_the_classes_it_asks_for(desk: Desk) -> None:
    desk.define("other", replay_class="safe")
    first = desk.item()
    second = desk.item(**{"class": "other"})
    refused = desk.acquire(item=first, classes=["other"])
    assert refused.detail["blocked"] == "class is not one of those asked for"
    assert desk.lease(classes=["other"]).item == second


# --- epochs


def test_a_new_epoch_puts_every_later_token_above_all_earlier_ones(desk: Desk) -> None:
    """Also those that a lost timeline handed out; old holders are stale at once re-leased."""
    item = desk.item()
    old = desk.lease(item=item)
    assert desk.call("t_operator", "eve_new_epoch", reason="restored").done
    desk.hold("eve_renew", old)
    desk.hold("eve_return", old)
    lease = desk.lease(item=item)
    assert lease.token == EPOCH + 1
    assert lease.lease == f"{item}.{EPOCH + 1}"
    desk.call("t_operator", "eve_cancel", item=item)
    assert desk.state(item).token == EPOCH + 2
    desk.call("t_operator", "eve_new_epoch")
    fresh = desk.lease(item=desk.item())
    assert fresh.token == 2 * EPOCH + 1
    event = desk.events(0)[-1]
    assert (event.kind, event.epoch) == ("epoch_started", 2)
    assert desk.events(fresh.item)[-1].epoch == 2


def test_a_token_of_a_lost_timeline_is_stale(desk: Desk) -> None:
    """A holder that the restored ledger never knew presents a token that is not the item's."""
    lease = desk.lease(item=desk.item())
    desk.call("t_operator", "eve_new_epoch")
    for lost in range(lease.token + 1, lease.token + 50, 7):
        with desk.refused("stale_fence"):
            desk.call("t_worker", "eve_complete", item=lease.item, token=lost)


def test_tokens_stay_below_two_to_the_53(desk: Desk) -> None:
    desk.spoiled = True
    desk.db.rows("update eve.queue set epoch = 2097151 where name = %s", [desk.queue])
    lease = desk.lease(item=desk.item())
    assert lease.token == 2097151 * EPOCH + 1 < 2**53
    assert desk.complete(lease).accepted


# --- the clock


def test_a_clock_that_steps_back_loses_no_order_and_no_lease(desk: Desk) -> None:
    """Never before the last tick or the item's last event; the step is recorded by the sweep."""
    start = desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="600 s")
    desk.clock.advance(300)
    desk.sweep()
    tick = desk.clock.now()
    desk.clock.set(start - timedelta(hours=1))
    assert desk.sweep().recovered == 0
    event = desk.events(0)[-1]
    assert (event.kind, event.data["behind_s"]) == ("clock_stepped", 3900)
    assert event.at >= tick
    second = desk.item()
    assert desk.events(second)[-1].at >= tick
    renewed = desk.hold("eve_renew", lease)
    assert renewed.expires_at == tick + timedelta(seconds=900)
    assert desk.complete(lease).accepted
    ats = [e.at for e in desk.events(lease.item)]
    assert ats == sorted(ats)
    desk.clock.set(start + timedelta(hours=2))
    kinds = [e.kind for e in desk.events(0)]
    desk.sweep()
    assert [e.kind for e in desk.events(0)] == kinds


def test_a_lapsed_lease_does_not_come_back_with_the_clock(desk: Desk) -> None:
    start = desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="600 s")
    desk.clock.advance(700)
    desk.sweep()
    desk.clock.set(start)
    with desk.refused("not_lease_holder"):
        desk.complete(lease)
    again = desk.lease(item=lease.item)
    assert again.expires_at > lease.expires_at


def test_a_forward_jump_only_ends_leases_early(desk: Desk) -> None:
    """Safe because of the fence: the holder is refused, the work is done once."""
    lease = desk.lease(item=desk.item())
    desk.clock.advance(10 * 365 * 86400)
    desk.sweep()
    with desk.refused("not_lease_holder"):
        desk.complete(lease)
    assert desk.complete(desk.lease(item=lease.item)).phase == "verified"


def test_the_only_clock_is_eve_now(desk: Desk) -> None:
    """Everything that is stamped follows the owned clock, to the microsecond."""
    now = desk.clock.set("2031-06-01 12:00:00.123456Z")
    item = desk.item()
    desk.complete(desk.lease(item=item))
    assert {e.at for e in desk.events(item)} == {now}


# --- durability


def test_a_queue_that_requires_durability_promises_nothing_without_it(desk: Desk) -> None:
    """This server runs with fsync off: refused with what to do; platform takes one's word."""
    with desk.refused("55000") as refused:
        desk.db.call("t_operator", "eve_create_queue", queue=f"{desk.queue}-safe")
    assert "platform" in (refused.error.diag.message_hint or "")
    assert desk.db.call(
        "t_operator", "eve_create_queue", queue=f"{desk.queue}-p", durability="platform"
    ).done
    desk.spoiled = True  # the audit finds what no event says
    desk.db.rows("update eve.queue set durability = 'required' where name = %s", [desk.queue])
    item = desk.item()  # a submission keeps the caller's setting
    with desk.refused("55000"):
        desk.acquire(item=item)
    assert desk.kinds(item) == ["admitted"]


def shown(connection: Connection, setting: str) -> str:
    row = connection.execute("select current_setting(%s)", [setting]).fetchone()
    return str(row[0]) if row else ""


@pytest.mark.parametrize(
    ("setting", "kept"),
    [("off", "on"), ("local", "on"), ("on", "on"), ("remote_write", "remote_write"),
     ("remote_apply", "remote_apply")],
)  # fmt: skip
def test_a_grant_raises_synchronous_commit_for_its_transaction(
    desk: Desk, setting: str, kept: str
) -> None:
    desk.item()
    connection = desk.db.connect("t_worker", autocommit=False)
    connection.execute(f"set synchronous_commit = {setting}".encode())
    connection.commit()
    call(connection, "eve_acquire", queue=desk.queue, worker="w")
    assert shown(connection, "synchronous_commit") == kept
    connection.rollback()
    assert shown(connection, "synchronous_commit") == setting


@pytest.mark.parametrize("setting", ["off", "remote_apply"])
def test_every_act_is_promised_and_a_submission_keeps_the_setting(
    world: World, setting: str
) -> None:
    """Grants, completions and acts raise it; reads, submissions and sweeps leave it alone."""
    raised = "on" if setting == "off" else setting
    same = {
        "eve_submit", "eve_sweep", "eve_recover", "eve_rebuild", "eve_fence", "eve_fence_table",
        "eve_contract", "eve_item", "eve_history", "eve_stats", "eve_explain", "eve_replay",
        "eve_audit", "eve_backtest", "eve_checks", "eve_statement", "eve_measure",
        "eve_set_health", "eve_recheck",
    }  # fmt: skip
    found = {}
    for verb in set(world.verbs) - {"eve_resume", "eve_unpause"}:  # nothing to undo in this world
        role, arguments = world.valid(verb)
        with world.rolled_back(role) as connection:
            connection.execute(f"set local synchronous_commit = {setting}".encode())
            call(connection, verb, **arguments)
            found[verb] = shown(connection, "synchronous_commit")
    assert {v for v, s in found.items() if s != raised} == (same if setting == "off" else set())


def test_housekeeping_does_at_most_sixteen_things_a_second(desk: Desk) -> None:
    """Whatever the door says of the acquisition that came by; nothing twice in one second."""
    desk.approve("cloud", 60)
    desk.clock.set("2031-06-01 12:00Z")
    for _ in range(20):
        desk.item()
    leases = desk.leases(20, ttl="60 s")
    waiting = [desk.item(not_before="2031-06-01 12:01Z") for _ in range(20)]
    desk.clock.set("2031-06-01 12:02Z")
    asked = waiting[-1]

    def done() -> int:
        recovered = sum(desk.kinds(lease.item)[-1] == "lease_expired" for lease in leases)
        return recovered + sum(desk.phase(item) == "ready" for item in waiting)

    counts = []
    for _ in range(4):
        for _ in range(2):
            assert desk.acquire(item=asked, ttl="1 s").refusal == "lease_ttl_out_of_range"
            counts.append(done())
        desk.clock.advance(1)
    assert counts == [16, 16, 32, 32, 40, 40, 40, 40]


def test_above_read_committed_nobody_keeps_house(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lapsed = desk.lease(item=desk.item(), ttl="60 s")
    desk.clock.set("2031-06-01 12:02Z")
    for level in ("repeatable read", "serializable"):
        connection = desk.db.connect("t_worker", autocommit=False)
        connection.execute(f"set transaction isolation level {level}".encode())
        answer = call(connection, "eve_acquire", queue=desk.queue, worker="w")[0]
        assert (answer.granted, answer.refusal) == (False, "concurrency_exhausted")
        connection.commit()
        assert desk.phase(lapsed.item) == "leased"
    assert desk.acquire().granted


def test_a_grant_bounds_how_long_its_transaction_may_idle(desk: Desk) -> None:
    """An open transaction occupies its slot: no longer than the lease would last."""
    desk.item()
    connection = desk.db.connect("t_worker", autocommit=False)
    call(connection, "eve_acquire", queue=desk.queue, worker="w", ttl="120 s")
    assert shown(connection, "idle_in_transaction_session_timeout") == "2min"
    assert desk.acquire().refusal == "concurrency_exhausted"
    connection.rollback()
    assert desk.acquire().granted
