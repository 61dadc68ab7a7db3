"""A queue with an item in every situation, and one call that succeeds there for each verb.

World.valid(verb) is the role and the arguments of such a call. Tests change one thing of it (an
argument, the role, the key) and roll back, so that one world serves hundreds of calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from support.database import Connection, Database, Row, call
from support.desk import Desk

ROLES = ("producer", "worker", "verifier", "operator", "human", "auditor")


@dataclass
class World:
    desk: Desk
    foreign: Desk  # a queue to which only t_operator has access
    items: dict[str, int]
    leases: dict[str, Row]
    decisions: dict[str, int]
    _connections: dict[str, Connection] = field(default_factory=dict)

    @property
    def db(self) -> Database:
        return self.desk.db

    @contextmanager
    def rolled_back(self, role: str) -> Iterator[Connection]:
        """A transaction of this role that leaves nothing behind."""
        if role not in self._connections:
            self._connections[role] = self.db.connect(role, autocommit=True)
        connection = self._connections[role]
        with connection.transaction(force_rollback=True):
            yield connection

    def answer(self, role: str, verb: str, /, **arguments: object) -> list[Row]:
        """What a call answers; nothing of it stays."""
        with self.rolled_back(role) as connection:
            return call(connection, verb, **arguments)

    def valid(self, verb: str, role: str | None = None) -> tuple[str, dict[str, object]]:
        """Who calls a verb, and with which arguments, so that it succeeds."""
        calls = self._calls()[verb]
        role = role or next(iter(calls))
        arguments = dict(calls[role])
        if verb not in ("eve_contract", "eve_create_queue"):
            arguments = {"queue": self.desk.queue, **arguments}
        return f"t_{role}", arguments

    def may(self, verb: str) -> list[str]:
        """The roles for which there is a call that succeeds."""
        return list(self._calls()[verb])

    @property
    def verbs(self) -> list[str]:
        return list(self._calls())

    def _calls(self) -> dict[str, dict[str, dict[str, object]]]:
        i, d = self.items, self.decisions
        lease = self.leases["held"]
        held: dict[str, object] = {"item": lease.item, "token": lease.token}
        batch: dict[str, object] = {"items": [lease.item], "tokens": [lease.token]}
        results: dict[str, object] = {"results": [Jsonb({"n": 1})]}
        return {
            "eve_contract": each(ROLES, {}),
            "eve_create_queue": each(["operator"], {"queue": "another", "durability": "any"}),
            "eve_define_class": each(["operator"], {"class": "extra", "replay_class": "safe"}),
            "eve_define_pool": each(["operator"], {"pool": "extra"}),
            "eve_grant_access": each(
                ["operator"], {"role": "t_nobody", "capability": "worker", "principal": "team"}
            ),
            "eve_revoke_access": each(["operator"], {"role": "eve_worker", "capability": "worker"}),
            "eve_submit": {
                **each(["producer", "operator"], {"work_id": "new", "payload": {"n": 1}}),
                "worker": {"work_id": "new", "under": f"({lease.item},{lease.token})"},
            },
            "eve_acquire": each(["worker"], {"worker": "w", "ttl": "120 s"}),
            "eve_turn": each(["worker"], {"worker": "w", **batch, **results}),
            "eve_renew": each(["worker"], {**held, "ttl": "1200 s"}),
            "eve_return": each(["worker"], {**held, "reason": "later"}),
            "eve_complete": each(["worker"], {**held, "result": {"n": 1}}),
            "eve_complete_batch": each(["worker"], {**batch, **results}),
            "eve_fail": each(["worker"], {**held, "error": "broken"}),
            "eve_start_effect": each(["worker"], {**held, "effect_identity": "effect"}),
            "eve_fence": each(["worker"], held),
            "eve_observe_effect": {
                "worker": {**held, "effect_identity": "effect"},
                "verifier": {"item": i["uncertain"], "effect_identity": "effect"},
            },
            "eve_reconcile": each(
                ["verifier", "human"], {"item": i["uncertain"], "finding": "absent"}
            ),
            "eve_compensate": each(
                ["verifier", "human"],
                {"item": i["completed"], "effect_identity": "effect", "evidence": {"kind": "n"}},
            ),
            "eve_verify": each(["verifier"], {"item": i["completed"], "evidence": {"kind": "n"}}),
            "eve_settle_import": each(
                ["verifier"], {"decision": d["import"], "work_id": "imported", "payload": {"n": 1}}
            ),
            "eve_cancel": each(["producer", "operator", "human"], {"item": i["ready"]}),
            "eve_propose": each(
                ["producer", "worker", "verifier", "operator", "human"],
                {"kind": "import", "item": i["ready"], "subject": {"n": 1}},
            ),
            "eve_accept": each(["human"], {"decision": d["open"], "answer": {"n": 1}}),
            "eve_decline": each(["human"], {"decision": d["open"], "answer": {"n": 1}}),
            "eve_approve_slots": each(["human"], {"pool": "spare", "slots": 2}),
            "eve_reject": each(["human"], {"item": i["ready"], "reason": "no"}),
            "eve_unpark": each(["human"], {"item": i["quarantined"], "extra_attempts": 2}),
            "eve_resume": each(["human"], {"reason": "on"}),
            "eve_halt": each(["operator", "human"], {"reason": "stop"}),
            "eve_reprioritise": each(
                ["operator", "human"], {"item": i["ready"], "priority_class": 0}
            ),
            "eve_pause": each(["operator"], {"class": "judged"}),
            "eve_unpause": each(["operator"], {"class": "judged"}),
            "eve_new_epoch": each(["operator"], {"reason": "restored"}),
            "eve_rebuild": each(["operator"], {}),
            "eve_fence_table": each(
                ["operator"],
                {"target": "output", "item_column": "item", "token_column": "token"},
            ),
            "eve_measure": each(["operator"], {}),
            "eve_set_health": each(["operator"], {"dependency": "mail", "health": "healthy"}),
            "eve_recheck": each(["operator"], {"item": i["waiting"]}),
            "eve_backtest": each(
                ["operator"],
                {
                    "class": "default",
                    "policy": Jsonb({"replay_class": "safe"}),
                    "since": "2000-01-01 00:00Z",
                },
            ),
            "eve_sweep": each(["worker", "operator"], {}),
            "eve_recover": each(["worker", "operator"], {}),
            "eve_item": each(ROLES, {"item": i["ready"]}),
            "eve_checks": each(ROLES, {"item": i["ready"]}),
            "eve_statement": each(ROLES, {"item": i["ready"]}),
            "eve_explain": each(ROLES, {"item": i["ready"]}),
            "eve_history": each(ROLES[2:], {"item": i["ready"]}),
            "eve_replay": each(ROLES[2:], {"item": i["ready"]}),
            "eve_audit": each(ROLES[2:], {}),
            "eve_stats": each(ROLES[2:], {}),
        }


def each(roles: list[str] | tuple[str, ...], arguments: dict[str, object]) -> dict[
    str, dict[str, object]
]:  # fmt: skip
    return dict.fromkeys(roles, arguments)


def build(db: Database, queue: str) -> World:
    """Make the queue, one foreign to it, and everything that the valid calls name."""
    desk = Desk(db, db.make_queue(queue))
    foreign = Desk(db, db.make_queue(f"{queue}-foreign", access=False))
    foreign.define("faraway", replay_class="safe")
    foreign.call("t_operator", "eve_define_pool", pool="faraway")
    desk.define("judged", preset="agent_task", replay_class="safe")
    desk.approve("cloud", 8)
    desk.call("t_operator", "eve_define_pool", pool="spare")
    items = {
        "uncertain": desk.uncertain(),
        "quarantined": desk.quarantined(),
        "completed": desk.item(**{"class": "judged"}),
    }
    assert desk.complete(desk.lease(item=items["completed"])).phase == "completed"
    lease = desk.lease(item=desk.item(), ttl="600 s")
    items |= {
        "held": lease.item,
        "parent": desk.item(work_id="parent"),
        "waiting": desk.item(after=["parent"]),
        "ready": desk.item(work_id="ready"),
        "foreign": desk.db.call("t_operator", "eve_submit", queue=foreign.queue).item,
    }
    decisions = {
        name: desk.call("t_operator", "eve_propose", kind=kind).decision
        for name, kind in (("open", "policy"), ("import", "import"))
    }
    desk.call("t_human", "eve_accept", decision=decisions["import"])
    decisions["foreign"] = desk.db.call(
        "t_operator", "eve_propose", queue=foreign.queue, kind="policy"
    ).decision
    db.rows(
        """
        create table public.output (item bigint not null, token bigint not null, body text);
        alter table public.output owner to t_operator;
        grant select, insert, update, delete, truncate on public.output to public;
        grant create on schema public to t_operator;
        """
    )
    return World(desk, foreign, items, {"held": lease}, decisions)
