"""Input that means harm or was damaged: every record is either taken whole or refused by name."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eve_queue.importers import Format, Refused, UnknownFormat, read, report
from importers.made import Beads, Notes, Write, issue

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (json.dumps({"id": "x" * MIB}), "id has 1048576 bytes, at most 512"),
        (json.dumps({"id": "é" * 257}), "id has 514 bytes"),
        (json.dumps({"id": 5}), 'id is "5", which is no string'),
        (json.dumps({"id": ["a"]}), "no string"),
        (json.dumps({"id": {"a": 1}}), "no string"),
        (json.dumps({"id": None}), "id is missing"),
        (json.dumps({"id": " "}), "id is empty"),
        (json.dumps({"id": "~12"}), "its own items"),
        (json.dumps({"id": "a\x00b"}), "NUL"),
        (json.dumps({"id": "a", "title": "x\x00"}), "NUL"),
        (json.dumps({"id": "a", "x": [{"y": "\x00"}]}), "NUL"),
        (json.dumps({"id": "a", "x\x00": 1}), "NUL"),
        ('{"id": "\x00"}', "NUL"),
        ('{"id": "a", "title": "\\ud800"}', "surrogate"),
        ('{"id": "\\udfff"}', "surrogate"),
        ('{"id": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
        ('{"id": "a", "x": ' + "[" * 80 + "]" * 80 + "}", "nested deeper than 64"),
        ('{"id": "a", "x": ' + '{"y":' * 5000, "nested"),
        ('{"id": "a", "x": 1e999}', "out of range"),
        ('{"id": "a", "x": ' + "9" * 5000 + "}", "out of range"),
        ('{"id": "a", "x": NaN}', "NaN"),
        ('{"id": "a", "x": -Infinity}', "Infinity"),
        ('{"id": "a", "priority": ' + "9" * 5000 + "}", "out of range"),
        (json.dumps({"id": "a", "description": "x" * MIB}), "at most 1048576"),
        (json.dumps({"id": "a"}) + " " * 5 * MIB, "line has"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_a_hostile_line_is_refused_and_the_next_is_read(
    beads: Beads, notes: Notes, line: str, said: str
) -> None:
    backlog = beads(line, issue("good"))
    assert [task.work_id for task in backlog.tasks] == ["good"]
    (note,) = notes(backlog, "refused")
    assert said in note.reason
    assert note.place.line == 1
    assert len(note.reason) < 400
    assert len(note.id or "") < 400
    assert len(report(backlog)) < 2000


def test_an_id_of_512_bytes_is_taken_and_huge_numbers_of_priority_are_least_urgent(
    beads: Beads,
) -> None:
    backlog = beads(issue("é" * 256, priority=10**300))
    assert len(backlog.tasks[0].work_id.encode()) == 512
    assert backlog.tasks[0].rank == 3


def test_invalid_utf8_is_named_by_line_and_the_rest_is_read(write: Write, notes: Notes) -> None:
    backlog = read(write("a.jsonl", b'{"id":"a"}\n{"id":"b","title":"\xff"}\n{"id":"c"}\n'))
    assert [task.work_id for task in backlog.tasks] == ["a", "c"]
    (note,) = notes(backlog, "refused")
    assert (note.place.line, note.id) == (2, "b")
    assert note.reason.startswith("invalid UTF-8: byte 0xff")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.md", b"---\nid: a\xff\n---\n", "frontmatter"),
        ("a.md", "---\nid: a\n---\n".encode("utf-16"), "frontmatter"),
        ("a.md", b"---\nid: a\x00\n---\n", "frontmatter"),
        ("a.json", b'[{"number": 1, "state": "open", "title": "\xff"}]', "github"),
        ("a.json", '[{"number": 1}]'.encode("utf-16"), "github"),
        ("a.json", b'[{"number": 1, "state": "open", "title": "\\u0000"}]', "github"),
        ("a.json", b"[" * 100_000, "github"),
        ("a.json", b'{"tasks": [\xff]}', "taskmaster"),
        ("a", b"Package: a\nSection: \xff\n", "debian"),
        ("a", b"Package: a\nSection: x\x00y\n", "debian"),
        ("a", b"Package: " + b"x" * MIB + b"\n", "debian"),
    ],
)
def test_unreadable_files_are_reported_by_every_importer(
    write: Write, notes: Notes, name: str, content: bytes, kind: Format
) -> None:
    backlog = read(write(name, content), kind)
    assert backlog.tasks == ()
    refused = notes(backlog, "refused")
    assert refused
    assert all(note.fault and note.place.path for note in refused)


def test_text_that_would_move_a_terminal_is_escaped_in_the_report(beads: Beads) -> None:
    backlog = beads(issue("a\x1b[2J\nb", "no\r\u202ewhere"))
    assert backlog.tasks[0].work_id == "a\x1b[2J\nb"
    text = report(backlog)
    assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert "a\\x1b[2J\\nb" in text
    assert json.loads(report(backlog, as_json=True))["notes"][0]["id"] == "a\x1b[2J\nb"


def test_a_compressed_bomb_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eve_queue.importers.source.MAX_SOURCE_BYTES", MIB)
    with pytest.raises(Refused, match="unpacks to more"):
        read(write("a.gz", gzip.compress(b" " * (2 * MIB))))
    with pytest.raises(Refused, match="at most"):
        read(write("a.jsonl", b" " * (2 * MIB)))


SLOW = [
    ("a.json", "github", {"number": 1, "state": "open", "body": "Depends on " + "a" * 700_000}),
    ("a.json", "github", {"number": 1, "state": "open", "body": " " * 900_000 + "x"}),
    ("a.json", "github", {"number": 1, "state": "open", "body": "depends on " * 80_000}),
    ("a.json", "github", {"number": 1, "state": "open", "body": "depends on a/" * 60_000}),
    ("a.json", "github", {"number": 1, "state": "open", "body": "<!--" * 200_000}),
    ("a.json", "github", {"number": 1, "state": "open", "body": "blocked " + " " * 900_000}),
    ("a.json", "github", {"number": 1, "state": "open", "labels": ["priority" + " " * 900_000]}),
]


@pytest.mark.parametrize(
    ("name", "kind", "content"),
    [
        *((name, kind, json.dumps([record])) for name, kind, record in SLOW),
        ("a", "debian", "Package: a\nDepends: " + " " * 900_000 + "b" + " " * 90_000 + "\n"),
        ("a", "debian", "Package: a\nDepends: b" + " ," * 400_000 + "\n"),
        ("a", "debian", "Package: a\nX: " + "a " * 400_000 + "\n"),
        ("a.md", "frontmatter", "---\nid: a\nx: " + "a: " * 20_000 + "\n---\n"),
        ("a.md", "frontmatter", "---\nid: a\nx: " + "- " * 30_000 + "\n---\n"),
        ("a.md", "frontmatter", "---\nid: a\nx: " + '"' * 60_000 + "\n---\n"),
        ("a.md", "frontmatter", "---\n" + "\n" * 900_000),
        ("a.jsonl", "beads", "<<<<<<< x\n" + "=======\n" * 50_000),
    ],
    ids=lambda value: value[-24:] if isinstance(value, str) else None,
)
def test_no_input_of_a_mebibyte_takes_long(
    write: Write, name: str, kind: Format, content: str
) -> None:
    path = write(name, content)
    start = time.process_time()
    read(path, kind)
    assert time.process_time() - start < 5


@settings(max_examples=300, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=400),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(
            st.sampled_from(
                [
                    b'{"id":"a"}',
                    b'{"number":1,"state":"open"}',
                    b"<<<<<<< x",
                    b"=======",
                    b"---",
                    b"id: a",
                    b"depends_on: [a, b]",
                    b"Package: a",
                    b"Depends: a | b,",
                    b"[",
                    b"]",
                    b",",
                    b'{"tasks":[',
                    b"]}",
                    b"\x00",
                    b"\xff",
                    b" ",
                    b"",
                ]
            ),
            max_size=12,
        ).map(b"\n".join),
    ),
    kind=st.sampled_from([None, "beads", "frontmatter", "debian", "github", "taskmaster"]),
)
def test_any_bytes_give_a_backlog_or_a_named_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, kind: Format | None
) -> None:
    path = _one_file(tmp_path_factory)
    path.write_bytes(data)
    try:
        backlog = read(path, kind)
    except (UnknownFormat, Refused):
        return
    report(backlog).encode()
    json.loads(report(backlog, as_json=True))
    for task in backlog.tasks:
        json.dumps(dict(task.payload), allow_nan=False).encode()
        assert 0 < len(task.work_id.encode()) <= 512
        assert 0 <= task.rank <= 3


def _one_file(factory: pytest.TempPathFactory) -> Path:
    return factory.getbasetemp() / "any-bytes"
