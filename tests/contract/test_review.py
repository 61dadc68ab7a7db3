"""Right values of faults that were met once."""

from __future__ import annotations

from support.desk import Desk
from support.session import session

PROTECTION = {
    "scope": "account", "retention": "10 s", "canonical_inputs": "all",
    "conflict_behaviour": "refuse", "authority": "ledger", "after_retention": "reconcile",
}  # fmt: skip


def test_a_casts_of_a_fenced_table_never_run_as_the_owner(desk: Desk) -> None:
    """Values of the writer's own types reach no definer body."""
    db = desk.db
    db.rows("create schema evil authorization t_operator")
    db.rows("grant usage on schema evil to t_worker")
    with db.connect("t_operator") as mine:
        mine.execute("create type evil.mood as enum ('x')")
        mine.execute(
            "create function evil.to_json(evil.mood) returns json language plpgsql as $$ begin"
            " insert into evil.ran values (current_user); return '1'::json; end $$"
        )
        mine.execute("create table evil.ran (who text)")
        mine.execute("create cast (evil.mood as json) with function evil.to_json(evil.mood)")
        mine.execute("create table evil.t (item bigint, token bigint, mood evil.mood)")
        mine.execute("grant all on evil.t, evil.ran to t_worker")
        mine.execute("select eve_fence_table(%s, 'evil.t', 'item', 'token')", [desk.queue])
    lease = desk.lease(item=desk.item())
    with db.connect("t_worker") as worker:
        worker.execute("insert into evil.t values (%s, %s, 'x')", [lease.item, lease.token])
    assert db.value("select count(*) from evil.ran where who = 'eve_owner'") == 0
    with desk.refused("stale_fence"), db.connect("t_worker") as worker:
        worker.execute("update evil.t set token = token + 1")
    with desk.refused("55000"), db.connect("t_worker") as worker:
        worker.execute("truncate evil.t")


def test_destination_protected_needs_a_protection_to_be_said(desk: Desk) -> None:
    with desk.refused("22023"):
        desk.submit(replay_class="destination_protected")


def test_who_declares_no_effect_starts_is_the_stricter(desk: Desk) -> None:
    desk.define("default", replay_class="reconcilable", ttl_floor="1 s")
    lease = desk.lease(item=desk.item())
    desk.define("default", replay_class="reconcilable", ttl_floor="1 s", effect_starts=True)
    desk.lapse(lease)
    desk.sweep()
    assert desk.phase(lease.item) == "uncertain"


def test_an_effect_of_an_earlier_attempt_still_counts(desk: Desk) -> None:
    """Inside the protection it is tried again; past it, it is neither leased nor retried."""
    desk.clock.set("2031-01-01 00:00Z")
    desk.define("default", replay_class="destination_protected", effect_starts=True,
                ttl_floor="1 s", backoff_base="0 s", protection=PROTECTION)  # fmt: skip
    item = desk.item()
    lease = desk.lease(item=item)
    desk.hold("eve_start_effect", lease)
    assert desk.hold("eve_fail", lease).phase == "ready"
    desk.clock.advance(11)
    assert not desk.acquire().granted
    assert desk.phase(item) == "uncertain"


def test_nulls_inside_a_callers_document_stay(desk: Desk) -> None:
    checkpoint = {"page": 3, "cursor": None, "l": [{"a": None}]}
    lease = desk.lease(item=desk.item())
    desk.hold("eve_renew", lease, checkpoint=checkpoint)
    desk.hold("eve_return", lease)
    assert desk.lease(item=lease.item).checkpoint == checkpoint


def test_other_evidence_is_another_completion(desk: Desk) -> None:
    lease = desk.lease(item=desk.item())
    desk.hold("eve_complete", lease, evidence={"kind": "a"})
    with desk.refused("idempotency_conflict"):
        desk.hold("eve_complete", lease, evidence={"kind": "a", "note": "b"})


def test_a_sweep_waits_for_no_idle_transaction(desk: Desk) -> None:
    with desk.db.connect("t_worker", autocommit=False) as idle:
        idle.execute("select * from eve_acquire(%s, 'w')", [desk.queue])
        with desk.db.connect("t_operator") as other:
            other.execute("set statement_timeout = '20 s'")
            other.execute("select * from eve_sweep(%s)", [desk.queue])
            other.execute("select * from eve_recover(%s)", [desk.queue])
        idle.rollback()


def test_after_sixteen_condemned_the_caller_is_told_to_ask_again(desk: Desk) -> None:
    desk.clock.set("2031-01-01 00:00Z")
    for _ in range(17):
        desk.item(value_until="2031-01-01 00:00:05Z")
    good = desk.item()
    desk.clock.advance(10)
    first = desk.acquire()
    assert not first.granted
    assert first.next_at is not None
    assert first.next_at <= desk.clock.now()
    assert desk.lease().item == good


def test_a_cycle_is_told_by_every_member_and_gone_with_its_waiver(desk: Desk) -> None:
    items = {
        name: desk.item(work_id=name, after=[on])
        for name, on in (("a", "b"), ("b", "c"), ("c", "a"))
    }
    for item in items.values():
        codes = [row.code for row in desk.calls("t_producer", "eve_explain", item=item)]
        assert "dependency_cycle" in codes
        assert "dependency_cycle" in desk.holds(item)
    waiver = desk.call("t_operator", "eve_propose", kind="waiver", item=items["c"], work_id="a")
    desk.call("t_human", "eve_accept", decision=waiver.decision)
    for item in items.values():
        codes = [row.code for row in desk.calls("t_producer", "eve_explain", item=item)]
        assert "dependency_cycle" not in codes
        assert "dependency_cycle" not in desk.holds(item)


def test_reconciling_observes_every_expected_effect_that_was_missing(desk: Desk) -> None:
    desk.define(
        "default", replay_class="reconcilable", completion_test="effects", effect_starts=True
    )
    lease = desk.lease(item=desk.item(expected_effects=["invoice", "mail"]))
    desk.hold("eve_observe_effect", lease, effect_identity="mail")
    assert desk.complete(lease).missing == ["invoice"]
    desk.call("t_verifier", "eve_reconcile", item=lease.item, finding="observed")
    assert desk.phase(lease.item) == "verified"
    assert desk.db.value(
        "select array_agg(effect_identity order by effect_identity) from eve.effect"
        " where queue_id = %s and item = %s and kind = 'observed'", [desk.id, lease.item],
    ) == ["invoice", "mail"]  # fmt: skip


def test_a_repeated_finish_gives_the_first_answer_to_the_letter(desk: Desk) -> None:
    desk.define("default", replay_class="safe", backoff_base="0 s")
    lease = desk.lease(item=desk.item())
    first = desk.hold("eve_fail", lease)
    again = desk.hold("eve_fail", lease)
    assert (first.phase, first.next_at) == (again.phase, again.next_at)
    lease = desk.lease(item=lease.item)
    first = desk.hold("eve_return", lease, until="2020-01-01 00:00Z")
    again = desk.hold("eve_return", lease, until="2020-01-01 00:00Z")
    assert (first.phase, first.next_at) == (again.phase, again.next_at)


def test_a_cancelled_item_whose_effect_is_absent_ends_cancelled_even_without_budget(
    desk: Desk,
) -> None:
    desk.define("default", replay_class="reconcilable", effect_starts=True,
                cancel_boundary="effect_start", attempts=1)  # fmt: skip
    lease = desk.lease(item=desk.item())
    desk.hold("eve_start_effect", lease)
    desk.call("t_producer", "eve_cancel", item=lease.item)
    desk.hold("eve_fail", lease)
    desk.call("t_verifier", "eve_reconcile", item=lease.item, finding="absent")
    assert desk.phase(lease.item) == "cancelled"


def test_every_kind_of_proposal_names_an_item_that_exists(desk: Desk) -> None:
    with desk.refused("P0002"):
        desk.call("t_operator", "eve_propose", kind="approval", item=-77)
    desk.call("t_operator", "eve_define_pool", pool="cloud")
    with desk.refused("P0002"):
        desk.call("t_operator", "eve_propose", kind="spend", pool="cloud", slots=1, item=-77)


def test_a_renewal_that_waited_is_judged_after_its_lock(desk: Desk) -> None:
    desk.clock.set("2031-01-01 00:00Z")
    lease = desk.lease(item=desk.item())
    with desk.db.connect("t_worker", autocommit=False) as first:
        first.execute("select * from eve_renew(%s, %s, %s)", [desk.queue, lease.item, lease.token])
        with session(desk.db, "t_worker") as second:
            pending = second.start_call(
                "eve_renew", queue=desk.queue, item=lease.item, token=lease.token
            )
            second.until_waiting()
            desk.clock.advance(100_000)
            first.rollback()
            with desk.refused("not_lease_holder"):
                pending.result(20)


def test_the_audit_sees_forged_facts_of_the_queue_and_the_rebuild_takes_them_back(
    desk: Desk,
) -> None:
    desk.approve("cloud", 3)
    desk.lease(item=desk.item(), pool="cloud")
    before = desk.db.rows("select * from eve.access where queue_id = %s order by 2, 3", [desk.id])
    for forgery in (
        "insert into eve.access values (%s, 't_nobody', 'human', null, now())",
        "update eve.queue set halted = true where queue_id = %s",
        "update eve.pool set slots = 9 where pool = 'cloud' and queue_id = %s",
        "update eve.work_class set revision = 0 where queue_id = %s",
    ):
        desk.db.rows(forgery, [desk.id])
        assert not desk.audit().clean
        rebuilt = desk.call("t_operator", "eve_rebuild")
        assert rebuilt.clean, rebuilt.faults
    after = desk.db.rows("select * from eve.access where queue_id = %s order by 2, 3", [desk.id])
    assert after == before
    assert desk.live("cloud") == 1


def test_a_function_run_by_somebody_elses_maintenance_acts_for_nobody(desk: Desk) -> None:
    """ANALYZE by a superuser runs index functions as the table's owner, in that session."""
    db = desk.db
    desk.item()
    decision = desk.call("t_operator", "eve_propose", kind="approval").decision
    db.rows("select eve_grant_access(%s, 'postgres', 'worker')", [desk.queue], role="t_operator")
    db.rows("create schema mallory authorization t_worker2")
    with db.connect("t_worker2") as mallory:
        mallory.execute("create table mallory.t (i int)")
        mallory.execute("create table mallory.said (what text)")
        mallory.execute(
            "create function mallory.g() returns void language plpgsql as $$ begin"
            f" begin perform public.eve_accept('{desk.queue}', {decision});"
            " insert into mallory.said values ('accepted');"
            " exception when others then insert into mallory.said values (sqlstate); end;"
            f" begin perform public.eve_acquire('{desk.queue}', 'mal');"
            " insert into mallory.said values ('acquired');"
            " exception when others then insert into mallory.said values (sqlstate); end;"
            " end $$"
        )
        mallory.execute(
            "create function mallory.f(i int) returns int language plpgsql immutable as"
            " $$ begin perform mallory.g(); return i; end $$"
        )
        mallory.execute("insert into mallory.t select generate_series(1, 3)")
        mallory.execute("create index on mallory.t (mallory.f(i))")
        mallory.execute("truncate mallory.said")
    for maintenance in ("analyze mallory.t", "reindex table mallory.t"):
        db.rows(maintenance)
        said = {row[0] for row in db.rows("select what from mallory.said")}
        assert said == {"42501"}, (maintenance, said)
    assert db.value("select phase from eve.decision where decision = %s", [decision]) == "open"
    assert not db.value(
        "select count(*) from eve.ledger where queue_id = %s and actor = 'postgres' and item > 0",
        [desk.id],
    )


def test_a_new_epoch_forgets_a_clock_that_had_jumped_ahead(desk: Desk) -> None:
    desk.clock.set("2031-01-01 00:00Z")
    desk.acquire()
    desk.clock.set("2041-01-01 00:00Z")
    desk.acquire()
    desk.sweep()
    desk.clock.set("2031-01-01 00:01Z")
    desk.call("t_operator", "eve_new_epoch")
    lease = desk.lease(item=desk.item())
    assert lease.expires_at.year == 2031
    assert lease.token > 2**32


def test_a_table_with_parts_is_fenced_part_by_part(desk: Desk) -> None:
    db = desk.db
    db.rows("create schema parts authorization t_operator")
    with db.connect("t_operator") as mine:
        mine.execute("create table parts.p (item bigint, token bigint) partition by list (token)")
        mine.execute("create table parts.p1 partition of parts.p for values in (1)")
        mine.execute("create table parts.par (item bigint, token bigint)")
        mine.execute("create table parts.chi () inherits (parts.par)")
    for table in ("parts.p", "parts.par"):
        with desk.refused("42809"), db.connect("t_operator") as mine:
            mine.execute("select eve_fence_table(%s, %s, 'item', 'token')", [desk.queue, table])
    with db.connect("t_operator") as mine:
        mine.execute("select eve_fence_table(%s, 'parts.p1', 'item', 'token')", [desk.queue])
        with desk.refused("55000"):
            mine.execute("truncate parts.p")


def test_a_fenced_table_may_have_columns_without_equality(desk: Desk) -> None:
    db = desk.db
    db.rows("create table fenced_json (item bigint, token bigint, doc json)")
    db.rows("grant all on fenced_json to t_worker")
    db.rows("alter table fenced_json owner to t_operator")
    db.rows("select eve_fence_table(%s, 'fenced_json', 'item', 'token')", [desk.queue],
            role="t_operator")  # fmt: skip
    lease = desk.lease(item=desk.item())
    with db.connect("t_worker") as worker:
        worker.execute("insert into fenced_json values (%s, %s, '{}')", [lease.item, lease.token])
        worker.execute("update fenced_json set doc = '{\"a\": 1}'")
