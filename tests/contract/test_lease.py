"""E-022 … E-029: how long a lease lives, who may write under it, and under which token."""

from __future__ import annotations

from datetime import timedelta

import pytest

from support.desk import Desk

HOLDER = (
    "eve_renew", "eve_complete", "eve_fail", "eve_return", "eve_start_effect", "eve_observe_effect",
    "eve_fence",
)  # fmt: skip


@pytest.mark.parametrize("ttl", ["59.999 s", "1 s", "0 s", "-1 h", "86400.001 s", "30 days"])
def test_e_022_a_ttl_outside_the_window_is_refused(desk: Desk, ttl: str) -> None:
    item = desk.item()
    for answer in (desk.acquire(ttl=ttl), desk.acquire(ttl=ttl, item=item)):
        assert (answer.granted, answer.refusal) == (False, "lease_ttl_out_of_range")
        assert (answer.detail["ttl_floor_s"], answer.detail["ttl_ceiling_s"]) == (60, 86400)
    assert desk.kinds(item) == ["admitted"]


@pytest.mark.parametrize(
    ("ttl", "lives", "clamped"),
    [
        ("60 s", 60, False), (None, 900, False), ("14400 s", 14400, False),
        ("14401 s", 14400, True), ("86400 s", 14400, True),
    ],
)  # fmt: skip
def test_e_022_a_ttl_inside_the_window_lasts_as_long(
    desk: Desk, ttl: str | None, lives: int, clamped: bool
) -> None:
    """Clamped by the maximum acquisition age, and the answer says so."""
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl=ttl)
    assert lease.expires_at == desk.clock.now() + timedelta(seconds=lives)
    assert lease.clamped is clamped


def test_e_022_the_window_is_that_of_the_class(desk: Desk) -> None:
    """A pick judges the item it picks: the queue's window is only the outer one."""
    desk.define("quick", replay_class="safe", ttl_floor="1 s", ttl="5 s", ttl_ceiling="10 s")
    quick = desk.item(**{"class": "quick"})
    slow = desk.item()
    assert desk.acquire(item=quick, ttl="11 s").refusal == "lease_ttl_out_of_range"
    assert desk.acquire(item=slow, ttl="5 s").refusal == "lease_ttl_out_of_range"
    assert desk.acquire(ttl="0.5 s").refusal == "lease_ttl_out_of_range"
    assert desk.lease(item=quick, ttl="5 s").granted


@pytest.mark.parametrize("function", HOLDER)
def test_e_023_another_principal_is_not_the_holder(desk: Desk, function: str) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("not_lease_holder"):
        desk.hold(function, lease, role="t_worker2")
    assert desk.kinds(lease.item) == ["admitted", "acquired"]
    desk.hold(function, lease)


@pytest.mark.parametrize("function", HOLDER)
def test_e_023_a_lapsed_holder_is_not_the_holder(desk: Desk, function: str) -> None:
    """At the very instant already, whether or not it was recovered; a microsecond before it is."""
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item())
    desk.lapse(lease)
    with desk.refused("not_lease_holder"):
        desk.hold(function, lease)
    assert desk.phase(lease.item) == "leased"
    desk.clock.advance(-0.000001)
    if function in ("eve_renew", "eve_fence"):
        desk.hold(function, lease)
    desk.clock.advance(86400)
    desk.sweep()
    with desk.refused("not_lease_holder"):
        desk.hold(function, lease)
    assert desk.phase(lease.item) == "ready"


def test_e_023_batches_say_so_row_by_row(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    for role in ("t_worker2", "t_worker"):
        answer = desk.calls(role, "eve_complete_batch", items=[lease.item], tokens=[lease.token])[0]
        assert (answer.accepted, answer.refusal) == (False, "not_lease_holder")
        desk.lapse(lease)


def test_e_024_renewals_end_at_the_maximum_age(desk: Desk) -> None:
    start = desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="3600 s")
    limit = start + timedelta(seconds=14400)
    for _ in range(3):
        desk.clock.advance(3500)
        lease = desk.hold("eve_renew", lease, ttl="3600 s")
        assert lease.expires_at == desk.clock.now() + timedelta(seconds=3600)
        assert not lease.clamped
    desk.clock.set(limit - timedelta(seconds=400))
    with desk.refused("lease_age_exceeded") as refused:
        desk.hold("eve_renew", lease, ttl="400.001 s")
    detail = desk.db.value("select %s::jsonb", [refused.error.diag.message_detail])
    assert (detail["code"], detail["item"]) == ("lease_age_exceeded", lease.item)
    assert detail["seconds_left"] == 400
    assert detail["next"]
    kept = desk.hold("eve_renew", lease, ttl="400 s")
    assert kept.expires_at == limit
    left = desk.hold("eve_renew", lease)
    assert (left.expires_at, left.clamped) == (limit, True)
    for ttl in ("14401 s", "30 days", "100000 years", "170000000 years"):
        with desk.refused("lease_age_exceeded"):
            desk.hold("eve_renew", lease, ttl=ttl)


def test_e_024_a_renewal_without_a_ttl_gives_what_the_class_gives(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="60 s")
    desk.clock.advance(30)
    renewed = desk.hold("eve_renew", lease)
    assert renewed.expires_at == desk.clock.now() + timedelta(seconds=900)
    assert renewed.clamped is False


def test_e_024_a_renewal_never_shortens(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="3600 s")
    for ttl in ("60 s", "1 s", None):
        assert desk.hold("eve_renew", lease, ttl=ttl).expires_at == lease.expires_at
    assert desk.state(lease.item).expires_at == lease.expires_at


def test_e_024_nor_does_a_class_whose_ages_shrank(desk: Desk) -> None:
    desk.clock.set("2031-06-01 12:00Z")
    lease = desk.lease(item=desk.item(), ttl="3600 s")
    desk.define(replay_class="safe", ttl="60 s", ttl_ceiling="120 s", max_age="120 s")
    assert desk.hold("eve_renew", lease).expires_at == lease.expires_at
    with desk.refused("lease_age_exceeded"):
        desk.hold("eve_renew", lease, ttl="121 s")


def test_renewals_carry_progress_and_checkpoint_to_the_next_holder(desk: Desk) -> None:
    item = desk.item()
    lease = desk.lease(item=item)
    desk.hold("eve_renew", lease, progress={"done": 1}, checkpoint={"row": 10})
    desk.hold("eve_renew", lease, progress={"done": 2})
    read = desk.call("t_producer", "eve_item", item=item)
    assert (read.progress, read.checkpoint) == ({"done": 2}, {"row": 10})
    desk.hold("eve_fail", lease, error="half way")
    desk.clock.advance(7200)
    again = desk.lease(role="t_worker2", item=item)
    assert (again.checkpoint, again.last_error, again.attempt) == ({"row": 10}, "half way", 2)
    desk.hold("eve_return", again, role="t_worker2", checkpoint={"row": 20})
    assert desk.lease(item=item).checkpoint == {"row": 20}


def test_e_025_tokens_only_grow_and_come_from_the_ledger(desk: Desk) -> None:
    """Whatever the projection says: it is rebuilt from events, and the next token is above all."""
    item = desk.item()
    seen = []
    for _ in range(2):
        lease = desk.lease(item=item)
        seen.append(lease.token)
        desk.hold("eve_return", lease)
    seen.append(desk.lease(item=item).token)
    desk.call("t_operator", "eve_cancel", item=item)
    seen.append(desk.state(item).token)
    assert seen == sorted(set(seen))
    minted = [e.token for e in desk.events(item) if e.kind in ("acquired", "cancelled")]
    assert minted == seen
    desk.db.rows("delete from eve.work_item where queue_id = %s", [desk.id])
    desk.call("t_operator", "eve_rebuild")
    assert desk.state(item).token == seen[-1]


@pytest.mark.parametrize("function", HOLDER[:5] + HOLDER[6:])
def test_e_026_an_absent_token_is_stale(desk: Desk, function: str) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("stale_fence"):
        desk.call("t_worker", function, item=lease.item, token=None)
    desk.hold(function, lease)


def test_e_026_an_absent_token_observes_nothing_of_a_leased_item(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    for role in ("t_worker", "t_verifier"):
        with desk.refused("stale_fence"):
            desk.call(role, "eve_observe_effect", item=lease.item)
    answer = desk.calls("t_worker", "eve_complete_batch", items=[lease.item], tokens=[None])[0]
    assert answer.refusal == "stale_fence"


@pytest.mark.parametrize("function", HOLDER)
def test_e_027_an_older_token_is_stale(desk: Desk, function: str) -> None:
    item = desk.item()
    old = desk.lease(item=item)
    desk.lapse(old)
    desk.sweep()
    new = desk.lease(role="t_worker2", item=item)
    for role in ("t_worker", "t_worker2"):
        with desk.refused("stale_fence"):
            desk.hold(function, old, role=role)
    desk.hold(function, new, role="t_worker2")


@pytest.mark.parametrize("function", HOLDER)
@pytest.mark.parametrize("ahead", [1, 2**32, 2**62])
def test_e_028_a_newer_token_than_was_minted_is_stale(
    desk: Desk, function: str, ahead: int
) -> None:
    lease = desk.lease(item=desk.item())
    with desk.refused("stale_fence") as refused:
        desk.call("t_worker", function, item=lease.item, token=lease.token + ahead)
    assert refused.error.diag.message_hint
    assert desk.phase(lease.item) == "leased"


@pytest.mark.parametrize("function", HOLDER)
def test_e_029_a_worker_cannot_supersede_itself_unnoticed(desk: Desk, function: str) -> None:
    item = desk.item()
    first = desk.lease(item=item, worker="same")
    desk.lapse(first)
    desk.call("t_worker", "eve_recover")
    second = desk.lease(item=item, worker="same")
    with desk.refused("stale_fence"):
        desk.hold(function, first)
    desk.hold(function, second)


def test_a_superseded_lease_writes_no_more(desk: Desk) -> None:
    """Cancelled and rejected while leased: the holder's next write is refused, whatever it is."""
    for role, verb, more in (
        ("t_operator", "eve_cancel", {}),
        ("t_human", "eve_reject", {"reason": "no"}),
    ):
        lease = desk.lease(item=desk.item())
        desk.call(role, verb, item=lease.item, **more)
        for function in HOLDER:
            with desk.refused("stale_fence"):
                desk.hold(function, lease)
