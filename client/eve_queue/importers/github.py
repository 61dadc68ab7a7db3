"""GitHub issues: the REST API's or `gh issue list --json`, as arrays or one object a line.

Rules. The id is `owner/repo#number` where the record says its repository, else `#number`. Lines of
the body that begin with "blocked by" or "depends on" name the edges: #n, GH-n, owner/repo#n or a
full address; code blocks and comments do not count, and neither does a mention inside a sentence
(it is noted). Labels P0 … P3 and `priority: word` give the rank, the most urgent of several, 2
without. Open is submitted; closed as completed is verified, as not planned or duplicate cancelled,
without a reason verified and noted. Pull requests are refused: they are no demand for work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .model import Json, Outcome, Place, Refused, Task, instant, label, payload, quoted
from .model import work_id as checked_id
from .source import Collector, StrictJson, elements, lines, text
from .words import DEFAULT_RANK, rank_of

_NAME = r"[\w.-]{1,100}/[\w.-]{1,100}"
_ADDRESS = re.compile(
    rf"https?://[^\s/]{{1,253}}/(?:repos/)?({_NAME})/(?:issues|pulls?)/([0-9]{{1,18}})\b"
)
_REPOSITORY = re.compile(rf"https?://[^\s/]{{1,253}}/repos/({_NAME})/?$")
_PHRASE = r"(?:blocked\s+(?:by|on)|depends\s+(?:up)?on)\b"
_LEAD = " \t\r>*_#+-"
_EDGE_LINE = re.compile(
    rf"(?:\d{{1,9}}[.)]\s+)?(?:\[[ xX]\]\s+)?[*_]*{_PHRASE}(.*)$", re.IGNORECASE
)
_MENTION = re.compile(rf"{_PHRASE}[*_:\s]*(?:{_NAME})?(?:#|GH-|https?://)\S*", re.IGNORECASE)
_REFERENCE = re.compile(
    rf"(?P<address>{_ADDRESS.pattern})"
    rf"|(?:(?<![\w./-])(?P<repo>{_NAME})#|(?<![\w#/])(?:#|GH-))(?P<number>[0-9]{{1,18}})\b",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_P_LABEL = re.compile(r"p[\s-]?([0-9])(?![\w.])", re.IGNORECASE)
_PRIORITY_LABEL = re.compile(r"prio(?:rity)?\s*[:/_\s-]\s*([\w-]+)", re.IGNORECASE)


def read(data: bytes, collector: Collector) -> None:
    """Every issue into the collector; pull requests and unusable records as notes."""
    spelling: dict[str, str] = {}
    issues: list[tuple[str, Place, dict[str, Json]]] = []
    for place, record, problem in _records(data, collector):
        if problem or not isinstance(record, dict):
            collector.refuse(place, _id_if_any(record), problem or "not a JSON object")
            continue
        try:
            work_id = _id(record, spelling)
        except Refused as refusal:
            collector.refuse(place, _id_if_any(record), str(refusal))
            continue
        if _is_pull_request(record):
            collector.refuse(place, work_id, "a pull request is no work to queue", fault=False)
            continue
        issues.append((work_id, place, record))
    for work_id, place, record in issues:
        try:
            task = _task(record, work_id, place, collector, spelling)
        except Refused as refusal:
            collector.refuse(place, work_id, str(refusal))
            continue
        collector.add(task)


def _records(data: bytes, to: Collector) -> Iterator[tuple[Place, Json, str | None]]:
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        strict = StrictJson()
        for line in lines(data):
            value: Json = None
            problem = line.problem
            if not problem:
                try:
                    value = strict.whole(line.text)
                except Refused as refusal:
                    problem = str(refusal)
            yield Place(to.path, line.number), value, problem
        return
    for bad in lines(data):
        if bad.problem and bad.problem.startswith("conflict marker"):
            to.refuse(Place(to.path, bad.number), None, bad.problem)
    try:
        for number, value, problem in elements(text(data)):
            yield Place(to.path, number), value, problem
    except Refused as refusal:
        to.refuse(Place(to.path), None, str(refusal))


def _id(record: dict[str, Json], spelling: dict[str, str]) -> str:
    number = record.get("number")
    if number is None:
        raise Refused("number is missing")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 10**18:
        raise Refused(f"number {quoted(number)} is no issue number")
    repo: str | None = None
    for key in ("html_url", "url"):
        address = record.get(key)
        found = _ADDRESS.match(address) if isinstance(address, str) else None
        if found:
            if int(found[2]) != number:
                raise Refused(f"number is {number}, but {key} is that of {found[2]}")
            repo = repo or found[1]
    where = record.get("repository_url")
    if repo is None and isinstance(where, str):
        at = _REPOSITORY.match(where)
        repo = at[1] if at else None
    if repo is not None:
        repo = spelling.setdefault(repo.casefold(), repo)
    return checked_id(f"{repo or ''}#{number}")


def _is_pull_request(record: dict[str, Json]) -> bool:
    address = record.get("html_url") or record.get("url")
    return record.get("pull_request") is not None or (
        isinstance(address, str) and "/pull/" in address
    )


def _task(
    record: dict[str, Json], work_id: str, place: Place, to: Collector, spelling: dict[str, str]
) -> Task:
    body = record.get("body")
    made = payload(
        record.get("title"),
        body,
        {key: value for key, value in record.items() if key not in ("title", "body")},
    )
    labels = _labels(record.get("labels"))
    rank, rank_problem = _rank(labels)
    outcome, evidence, state_problem = _state(record)
    evidence |= {"format": "github", "labels": list(labels)}
    if record.get("assignees"):
        evidence["claim"] = {"assignees": record["assignees"]}
    after, mentions = _edges(body if isinstance(body, str) else "", work_id, spelling)
    time = instant(record.get("created_at", record.get("createdAt")))
    for problem in (rank_problem, state_problem, time.problem, *mentions):
        if problem:
            to.note("noted", place, work_id, problem)
    summary = record.get("issue_dependencies_summary")
    blockers = summary.get("total_blocked_by") if isinstance(summary, dict) else None
    if isinstance(blockers, int) and blockers > len(after) and outcome == "submit":
        reason = f"the tracker counts {blockers} blockers, the record names {len(after)}"
        to.note("noted", place, work_id, reason)
    milestone = record.get("milestone")
    group = milestone.get("title") if isinstance(milestone, dict) else None
    return Task(
        work_id=work_id,
        payload=made,
        rank=rank,
        outcome=outcome,
        place=place,
        after=after,
        requested_at=time.utc,
        requested_at_original=time.original,
        group_label=label(group),
        evidence=evidence,
    )


def _state(record: dict[str, Json]) -> tuple[Outcome, dict[str, Json], str | None]:
    state = record.get("state")
    reason = record.get("state_reason", record.get("stateReason")) or None
    if not isinstance(state, str) or state.casefold() not in ("open", "closed"):
        raise Refused(f"state {quoted(state)} is neither open nor closed")
    evidence: dict[str, Json] = {"status": state, "status_reason": reason}
    closed_at = record.get("closed_at", record.get("closedAt"))
    if closed_at:
        evidence["closed_at"] = closed_at
    if state.casefold() == "open":
        return "submit", evidence, None
    word = reason.casefold() if isinstance(reason, str) else None
    if word in ("not_planned", "duplicate"):
        return "cancelled", evidence, None
    if word == "completed":
        return "verified", evidence, None
    said = "without a reason" if reason is None else f"for the unknown reason {quoted(reason)}"
    return "verified", evidence, f"closed {said}: taken as completed"


def _labels(listed: Json) -> tuple[str, ...]:
    if not isinstance(listed, list):
        return ()
    names = (entry.get("name") if isinstance(entry, dict) else entry for entry in listed)
    return tuple(name for name in names if isinstance(name, str))


def _rank(labels: tuple[str, ...]) -> tuple[int, str | None]:
    ranks: list[int] = []
    unknown: list[str] = []
    for name in labels:
        start = " ".join(name[:100].split())
        short = _P_LABEL.match(start)
        long = _PRIORITY_LABEL.match(start)
        rank = min(int(short[1]), 3) if short else rank_of(long[1]) if long else None
        if rank is not None:
            ranks.append(rank)
        elif long:
            unknown.append(name)
    if unknown and not ranks:
        return DEFAULT_RANK, f"unknown priority label {quoted(unknown[0])}: rank {DEFAULT_RANK}"
    if len(set(ranks)) > 1:
        return min(ranks), f"priority labels disagree: rank {min(ranks)}, the most urgent"
    return (ranks[0] if ranks else DEFAULT_RANK), None


def _edges(body: str, own: str, spelling: dict[str, str]) -> tuple[tuple[str, ...], list[str]]:
    """Ids that the body says it waits for, line by line, and mentions that are no edges."""
    own_repo = own.rpartition("#")[0]
    after: dict[str, None] = {}
    mentions: list[str] = []
    fence: str | None = None
    for line in _COMMENT.sub("", body).split("\n"):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence):
                fence = None
            continue
        if mark:
            fence = mark[1]
            continue
        found = _EDGE_LINE.match(line.lstrip(_LEAD))
        if not found:
            mention = _MENTION.search(line)
            if mention:
                mentions.append(f"mentions {quoted(mention[0])} inside a sentence: no edge")
            continue
        named = list(_REFERENCE.finditer(found[1]))
        if not named:
            mentions.append(f"{quoted(line.strip())} names no issue: no edge")
        for reference in named:
            address = _ADDRESS.match(reference["address"]) if reference["address"] else None
            repo = address[1] if address else reference["repo"] or own_repo
            number = address[2] if address else reference["number"]
            after[f"{spelling.get(repo.casefold(), repo)}#{int(number)}"] = None
    return tuple(after), mentions


def _id_if_any(record: Json) -> Json:
    number = record.get("number") if isinstance(record, dict) else None
    return f"#{number}" if isinstance(number, int) and 0 < number < 10**18 else number
