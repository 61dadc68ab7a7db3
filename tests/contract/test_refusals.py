"""E-056 … E-071: the closed set of fifteen refusals, and not_admitted beside them.

Each is produced here by the product, on each channel that the vocabulary gives it, and asserted by
code: a returned one by its column, a raised one by its SQLSTATE. The count at the end is made from
the vocabulary, so that a new row without a scenario fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from support.database import Database
from support.desk import Desk


@dataclass(frozen=True)
class Seen:
    """A refusal as a caller sees it."""

    code: str
    channel: str
    detail: dict[str, Any]
    next: list[str]
    hint: str | None = None
    message: str | None = None


Scenario = Callable[[Desk], Seen]
SCENARIOS: dict[tuple[str, str], Scenario] = {}


def produces(code: str, channel: str) -> Callable[[Scenario], Scenario]:
    def register(scenario: Scenario) -> Scenario:
        assert (code, channel) not in SCENARIOS
        SCENARIOS[code, channel] = scenario
        return scenario

    return register


def returned(row: Any) -> Seen:
    """A refusal in the row of an answer."""
    assert not getattr(row, "granted", None)
    assert not getattr(row, "accepted", None)
    given = row.next if getattr(row, "next", None) else (row.detail or {}).get("next")
    return Seen(row.refusal, "returned", row.detail or {}, given or [])


def raised(desk: Desk, call: Callable[[], object]) -> Seen:
    """A refusal as an error: its code is what the vocabulary has for the SQLSTATE."""
    with pytest.raises(psycopg.Error) as caught:
        call()
    diag = caught.value.diag
    code = desk.db.value("select code from eve.refusal where sqlstate = %s", [diag.sqlstate])
    detail = desk.db.value("select %s::jsonb", [diag.message_detail])
    assert detail["code"] == code
    return Seen(code, "raised", detail, detail["next"], diag.message_hint, diag.message_primary)


@produces("fleet_halted", "returned")
def halted(desk: Desk) -> Seen:
    desk.item()
    desk.call("t_operator", "eve_halt")
    answer = desk.acquire()
    assert answer.retry_after.total_seconds() > 0
    return returned(answer)


@produces("not_acquirable", "returned")
def not_acquirable(desk: Desk) -> Seen:
    return returned(desk.acquire(item=desk.done()))


@produces("concurrency_exhausted", "returned")
def concurrency(desk: Desk) -> Seen:
    desk.lease(item=desk.item())
    answer = desk.acquire(item=desk.item())
    assert answer.retry_after.total_seconds() > 0
    return returned(answer)


@produces("spend_not_approved", "returned")
def spend(desk: Desk) -> Seen:
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    return returned(desk.acquire(item=desk.item(), pool="cloud"))


@produces("dependency_not_ready", "returned")
def not_ready(desk: Desk) -> Seen:
    desk.item(work_id="a")
    return returned(desk.acquire(item=desk.item(after=["a"])))


@produces("unknown_dependency", "returned")
def unknown(desk: Desk) -> Seen:
    return returned(desk.acquire(item=desk.item(after=["nobody"])))


@produces("dependency_cycle", "returned")
def cycle(desk: Desk) -> Seen:
    return returned(desk.acquire(item=desk.item(work_id="me", after=["me"])))


@produces("retry_budget_exhausted", "returned")
def budget(desk: Desk) -> Seen:
    item = desk.item()
    desk.lapse(desk.lease(item=item))
    desk.sweep()
    desk.define(replay_class="safe", attempts=1)
    return returned(desk.acquire(item=item))


@produces("quarantined", "returned")
def quarantined(desk: Desk) -> Seen:
    return returned(desk.acquire(item=desk.quarantined()))


@produces("lease_ttl_out_of_range", "returned")
def ttl(desk: Desk) -> Seen:
    return returned(desk.acquire(item=desk.item(), ttl="59 s"))


@produces("stale_fence", "raised")
def stale(desk: Desk) -> Seen:
    lease = desk.lease(item=desk.item())
    return raised(
        desk, lambda: desk.call("t_worker", "eve_complete", item=lease.item, token=lease.token + 1)
    )


@produces("stale_fence", "returned")
def stale_row(desk: Desk) -> Seen:
    lease = desk.lease(item=desk.item())
    return returned(desk.calls("t_worker", "eve_complete_batch", items=[lease.item], tokens=[9])[0])


@produces("not_lease_holder", "raised")
def holder(desk: Desk) -> Seen:
    lease = desk.lease(item=desk.item())
    return raised(desk, lambda: desk.hold("eve_renew", lease, role="t_worker2"))


@produces("not_lease_holder", "returned")
def holder_row(desk: Desk) -> Seen:
    lease = desk.lease(item=desk.item())
    return returned(
        desk.calls("t_worker2", "eve_turn", worker="w", items=[lease.item], tokens=[lease.token])[0]
    )


@produces("lease_age_exceeded", "raised")
def age(desk: Desk) -> Seen:
    lease = desk.lease(item=desk.item())
    return raised(desk, lambda: desk.hold("eve_renew", lease, ttl="14401 s"))


@produces("idempotency_conflict", "raised")
def conflict(desk: Desk) -> Seen:
    desk.submit(idempotency_key="k", payload={"n": 1})
    return raised(desk, lambda: desk.submit(idempotency_key="k", payload={"n": 2}))


@produces("terminal_state_not_owned", "raised")
def ownership(desk: Desk) -> Seen:
    item = desk.item()
    return raised(desk, lambda: desk.call("t_operator", "eve_reject", item=item, reason="no"))


@produces("not_admitted", "raised")
def not_admitted(desk: Desk) -> Seen:
    return raised(desk, lambda: desk.submit(deadline="2001-01-01Z", must_admit=True))


# --- the lines, one by one


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("fleet_halted", id="e_056"),
        pytest.param("not_acquirable", id="e_057"),
        pytest.param("concurrency_exhausted", id="e_058"),
        pytest.param("spend_not_approved", id="e_059"),
        pytest.param("dependency_not_ready", id="e_060"),
        pytest.param("unknown_dependency", id="e_061"),
        pytest.param("dependency_cycle", id="e_062"),
        pytest.param("retry_budget_exhausted", id="e_063"),
        pytest.param("quarantined", id="e_064"),
        pytest.param("stale_fence", id="e_065"),
        pytest.param("idempotency_conflict", id="e_066"),
        pytest.param("lease_ttl_out_of_range", id="e_067"),
        pytest.param("lease_age_exceeded", id="e_068"),
        pytest.param("not_lease_holder", id="e_069"),
        pytest.param("terminal_state_not_owned", id="e_070"),
        pytest.param("not_admitted", id="not_admitted"),
    ],
)
def test_a_refusal_is_produced_and_asserted_by_code(
    shared: Database, desks: Callable[[], Desk], code: str
) -> None:
    row = shared.row("select * from eve.refusal where code = %s", [code])
    channels = ["returned", "raised"] if row.channel == "both" else [row.channel]
    for channel in channels:
        seen = SCENARIOS[code, channel](desks())
        assert (seen.code, seen.channel) == (code, channel)
        assert seen.next, "every refusal carries the calls that are allowed now"
        assert "%" not in "".join(seen.next), "filled in"
        if channel == "raised":
            assert (seen.message, seen.hint) == (row.message, row.hint)
        else:
            assert seen.detail


# --- the count


def counted(db: Database, desk: Callable[[], Desk]) -> tuple[int, list[str], list[str]]:
    """How many codes there are, which nothing produces, and which no scenario asserts."""
    wanted = {
        (row.code, channel)
        for row in db.rows("select code, channel from eve.refusal")
        for channel in (["returned", "raised"] if row.channel == "both" else [row.channel])
    }
    unasserted = sorted(" ".join(pair) for pair in wanted - set(SCENARIOS))
    produced = set()
    for scenario in SCENARIOS.values():
        seen = scenario(desk())
        produced.add((seen.code, seen.channel))
        db.clock.release()
    unreachable = sorted(" ".join(pair) for pair in wanted - produced)
    return len({code for code, _ in wanted}), unreachable, unasserted


@pytest.fixture
def desks(shared: Database) -> Callable[[], Desk]:
    made: list[str] = []

    def one() -> Desk:
        made.append(f"refusals{len(made)}-{shared.value('select count(*) from eve.queue')}")
        return Desk(shared, shared.make_queue(made[-1]))

    return one


def test_e_071_unreachable_0_unasserted_0(shared: Database, desks: Callable[[], Desk]) -> None:
    codes, unreachable, unasserted = counted(shared, desks)
    print(f"refusals: {codes} unreachable {len(unreachable)} unasserted {len(unasserted)}")
    assert (codes, unreachable, unasserted) == (16, [], [])
    assert set(SCENARIOS) == {
        (row.code, channel)
        for row in shared.rows("select code, channel from eve.refusal")
        for channel in (["returned", "raised"] if row.channel == "both" else [row.channel])
    }


def test_e_071_a_new_code_without_a_test_fails_the_count(
    shared: Database, desks: Callable[[], Desk]
) -> None:
    shared.rows(
        "insert into eve.refusal values ('something_new', 'VE999', 'both', 418, 'later',"
        " 'new', 'New.', '{eve_explain}')"
    )
    try:
        codes, unreachable, unasserted = counted(shared, desks)
    finally:
        shared.rows("delete from eve.refusal where code = 'something_new'")
    assert codes == 17
    assert unreachable == unasserted == ["something_new raised", "something_new returned"]


def test_the_set_is_closed_at_fifteen_and_is_the_contracts(shared: Database) -> None:
    """Code, SQLSTATE, HTTP status, retry advice, as the contract's table has them."""
    assert {
        (row.code, row.sqlstate, row.http_status, row.retry)
        for row in shared.rows("select * from eve.refusal")
    } == {
        ("fleet_halted", "VE001", 503, "later"),
        ("not_acquirable", "VE002", 409, "later"),
        ("concurrency_exhausted", "VE003", 429, "later"),
        ("spend_not_approved", "VE004", 403, "human"),
        ("dependency_not_ready", "VE101", 424, "later"),
        ("unknown_dependency", "VE102", 422, "change"),
        ("dependency_cycle", "VE103", 422, "change"),
        ("retry_budget_exhausted", "VE201", 409, "human"),
        ("quarantined", "VE202", 423, "human"),
        ("stale_fence", "VE301", 412, "stop"),
        ("lease_ttl_out_of_range", "VE302", 400, "change"),
        ("lease_age_exceeded", "VE303", 409, "stop"),
        ("not_lease_holder", "VE304", 403, "stop"),
        ("idempotency_conflict", "VE401", 422, "new key"),
        ("terminal_state_not_owned", "VE501", 403, "human"),
        ("not_admitted", "VE601", 422, "change"),
    }
    named = shared.value(
        "select array_agg(distinct r order by r) from eve.semantic as s, unnest(s.refusals) as r"
    )
    codes = shared.value("select array_agg(code order by code) from eve.refusal")
    assert set(codes) - set(named) == {"fleet_halted", "not_acquirable", "not_admitted"}


def test_messages_follow_the_style_of_postgresql(shared: Database) -> None:
    """Lower-case start, no full stop; a hint is a sentence."""
    for row in shared.rows("select * from eve.refusal"):
        assert row.message[0].islower()
        assert row.message[-1] not in ".!"
        assert row.hint[0].isupper()
        assert row.hint.endswith(".")


def test_a_refusal_in_a_batch_is_a_row_and_with_all_or_nothing_an_error(desk: Desk) -> None:
    desk.approve("cloud", 2)
    for _ in range(2):
        desk.item()
    good, bad = desk.leases(2)
    arguments = {"items": [bad.item, good.item], "tokens": [9, good.token]}
    for verb, more in (("eve_complete_batch", {}), ("eve_turn", {"worker": "w"})):
        with desk.refused("stale_fence"):
            desk.calls("t_worker", verb, **arguments, **more, all_or_nothing=True)
    assert [desk.phase(x.item) for x in (good, bad)] == ["leased", "leased"]
    rows = desk.calls("t_worker", "eve_complete_batch", **arguments)
    assert [(row.item, row.accepted, row.refusal) for row in rows] == [
        (bad.item, False, "stale_fence"),
        (good.item, True, None),
    ]
    with desk.refused("P0002"):
        desk.calls("t_worker", "eve_complete_batch", items=[10**15], tokens=[1],
                   all_or_nothing=True)  # fmt: skip
