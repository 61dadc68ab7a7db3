"""An uncertain item is never leased before its reconciliation, on any path."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from support.desk import Desk

PATHS: dict[str, Callable[[Desk, int], object]] = {
    "next": lambda desk, _item: desk.acquire(),
    "named": lambda desk, item: desk.acquire(item=item),
    "sweep": lambda desk, _item: desk.sweep(),
    "recover": lambda desk, _item: desk.call("t_operator", "eve_recover"),
    "unpark": lambda desk, item: desk.call("t_human", "eve_unpark", item=item),
    "reprioritise": lambda desk, item: desk.call(
        "t_operator", "eve_reprioritise", item=item, priority_class=0
    ),
    "cancel": lambda desk, item: desk.call("t_operator", "eve_cancel", item=item),
    "halt and resume": lambda desk, _item: (
        desk.call("t_operator", "eve_halt", reason="x"),
        desk.call("t_human", "eve_resume", reason="x"),
    ),
    "rebuild": lambda desk, _item: desk.call("t_operator", "eve_rebuild"),
    "new epoch": lambda desk, _item: desk.call("t_operator", "eve_new_epoch", reason="x"),
    "new revision": lambda desk, _item: desk.define(replay_class="safe", attempts=9),
    "recheck": lambda desk, item: desk.call("t_operator", "eve_recheck", item=item),
    "measure": lambda desk, _item: desk.calls("t_operator", "eve_measure"),
    "finding unavailable": lambda desk, item: desk.call(
        "t_verifier", "eve_reconcile", item=item, finding="unavailable",
        evidence={"kind": "lookup"},
    ),
    "submitted again": lambda desk, _item: desk.submit(work_id="a"),
}  # fmt: skip


def import_again(desk: Desk, _item: int) -> object:
    decision = desk.call("t_operator", "eve_propose", kind="import").decision
    desk.call("t_human", "eve_accept", decision=decision)
    return desk.call("t_verifier", "eve_settle_import", decision=decision, work_id="a", payload={})


PATHS["import"] = import_again


@pytest.mark.parametrize("path", PATHS)
def test_an_uncertain_item_is_never_leased_before_it_is_reconciled(desk: Desk, path: str) -> None:
    desk.define(replay_class="non_repeatable")
    item = desk.item(work_id="a")
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    assert desk.phase(item) == "uncertain"
    try:
        PATHS[path](desk, item)
    except psycopg.Error as refused:
        assert refused.sqlstate in ("55000", "VE601", "22023", "42710"), refused  # noqa: PT017
    desk.sweep()
    assert desk.phase(item) == "uncertain"
    assert not desk.acquire().granted
    assert not desk.acquire(item=item).granted
    assert desk.kinds(item).count("acquired") == 1
    desk.call("t_verifier", "eve_reconcile", item=item, finding="absent",
              evidence={"kind": "lookup"})  # fmt: skip
    if path == "cancel":
        assert desk.phase(item) == "cancelled"
    else:
        assert desk.lease(item=item).token > lease.token
