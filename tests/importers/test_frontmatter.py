"""Markdown task files: directory, tar, single file; ids, states, edges, YAML that is not taken."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eve_queue.importers import Backlog, ImportStopped, depth, read, waves
from importers.made import Notes, Write


def page(front: str, body: str = "the body\n") -> str:
    return f"---\n{front}\n---\n\n{body}"


def tar_of(files: dict[str, str], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return out.getvalue()


@pytest.fixture
def pages(write: Write, tmp_path: Path) -> Callable[..., Backlog]:
    def make(**files: str) -> Backlog:
        for name, content in files.items():
            write(f"tasks/{name}.md", content)
        return read(tmp_path / "tasks")

    return make


SMALL = {
    "p/one.md": page("id: a/one\nname: first\nstatus: completed"),
    "p/two.md": page("id: a/two\nname: second\nstatus: done\ndepends_on: [a/one]"),
    "p/three.md": page("id: a/three\nstatus: pending\ndepends_on:\n  - a/two\n  - a/one"),
    "p/four.md": page("id: a/four\ntitle: fourth\ndepends_on: a/three, a/one"),
    "p/LICENSE": "not a task",
}


def test_directory_and_tar_give_the_same_tasks(write: Write, tmp_path: Path) -> None:
    for name, content in SMALL.items():
        write(f"d/{name}", content)
    from_tar = read(write("t.tar", tar_of(SMALL)))
    from_gzip = read(write("t.tar.gz", tar_of(SMALL, "w:gz")))
    from_directory = read(tmp_path / "d")
    assert from_tar.tasks == from_gzip.tasks == from_directory.tasks
    assert [task.work_id for task in from_tar.tasks] == ["a/four", "a/one", "a/three", "a/two"]
    assert str(from_tar.tasks[0].place) == "p/four.md"
    assert waves(from_tar) == (("a/three",), ("a/four",))
    assert depth(from_tar) == 4
    assert sum(1 for _ in from_tar.edges()) == 5
    assert from_tar.notes == ()


def test_states_ranks_and_bodies(pages: Callable[..., Backlog]) -> None:
    backlog = pages(
        a=page("id: a\nstatus: Completed"),
        b=page("id: b\nstatus: done\npriority: high"),
        c=page("id: c\nstatus: To Do\npriority: P0"),
        d=page("id: d\nstatus: in_progress\nassignee: the cook\npriority: 3"),
        e=page("id: e\nstatus: deferred"),
        f=page("id: f\nstatus: cancelled"),
        g=page("id: g"),
    )
    assert [(t.work_id, t.outcome, t.rank) for t in backlog.tasks] == [
        ("a", "verified", 2),
        ("b", "verified", 1),
        ("c", "submit", 0),
        ("d", "submit", 3),
        ("e", "hold", 2),
        ("f", "cancelled", 2),
        ("g", "submit", 2),
    ]
    assert backlog.tasks[3].evidence["claim"] == {"status": "in_progress", "holder": "the cook"}
    assert backlog.tasks[0].payload["body"] == "the body"


def test_scalars_keep_their_spelling(pages: Callable[..., Backlog]) -> None:
    backlog = pages(
        a=page("id: 010\ndepends_on: [1_000, 12:30]\ncreated: 2031-05-01T10:00:00+02:00"),
        b=page("id: 1_000\ncreated: 2031-05-01"),
        c=page("id: 12:30"),
    )
    assert [task.work_id for task in backlog.tasks] == ["010", "1_000", "12:30"]
    assert backlog.tasks[0].after == ("1_000", "12:30")
    assert backlog.tasks[0].requested_at == datetime(2031, 5, 1, 8, tzinfo=UTC)
    assert backlog.tasks[1].requested_at is None
    assert backlog.tasks[1].requested_at_original == "2031-05-01"


def test_the_name_of_the_file_is_never_the_id(pages: Callable[..., Backlog], notes: Notes) -> None:
    backlog = pages(a=page("name: no id"), b=page("id: not-b"))
    assert [task.work_id for task in backlog.tasks] == ["not-b"]
    (note,) = notes(backlog, "refused")
    assert (str(note.place), note.id, note.reason) == ("a.md", None, "id is missing")


def test_two_files_of_one_id_and_the_same_file_twice(
    pages: Callable[..., Backlog], notes: Notes
) -> None:
    backlog = pages(a=page("id: x\nname: one"), b=page("id: x\nname: one"), c=page("id: x"))
    assert len(backlog.tasks) == 1
    assert [str(note.place) for note in notes(backlog, "merged")] == ["b.md"]
    assert [str(note.place) for note in notes(backlog, "refused")] == ["c.md"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (page("id: a\nname: 'open"), "invalid YAML"),
        (page("id: a\nid: b"), 'key "id" occurs twice (line 3)'),
        (page("id: a\nname: x: y"), "(line 3)"),
        (page("- a\n- b"), "no mapping"),
        (page("id: [a]"), "no string"),
        (page("id: true"), "no string"),
        (page("id:"), "id is missing"),
        (page("id: a\nx: !!python/object/apply:os.getcwd []"), "invalid YAML"),
        (page("id: a\nx: !!binary aGk="), "has no form in JSON"),
        (page("id: a\nx: !!timestamp 2031-01-01"), "has no form in JSON"),
        (page("id: a\nx: !!float .inf"), "out of range"),
        (page("id: a\n? [b]\n: c"), "YAML"),
        (page("id: a\nstatus: [x]"), "status"),
        ("---\nid: a\n", "not closed"),
        (page("id: a", "x\n<<<<<<< ours\ny"), "conflict marker <<<<<<< in line 6"),
        (page("<<<<<<< ours\nid: a"), "conflict marker <<<<<<< in line 2"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    pages: Callable[..., Backlog], notes: Notes, content: str, said: str
) -> None:
    backlog = pages(bad=content, good=page("id: good"))
    assert [task.work_id for task in backlog.tasks] == ["good"]
    (note,) = notes(backlog, "refused")
    assert str(note.place) == "bad.md"
    assert said in note.reason
    assert note.fault


def test_a_page_without_front_matter_is_no_task_and_no_fault(
    pages: Callable[..., Backlog], notes: Notes
) -> None:
    backlog = pages(README="# Tasks\n", good=page("id: good"))
    (note,) = notes(backlog, "refused")
    assert (str(note.place), note.fault) == ("README.md", False)


@pytest.mark.parametrize(
    "front",
    [
        "id: a\nbomb: &x [1]\nuse: *x",
        "id: a\na: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]",
        "id: a\nself: &self [*self]",
        "id: a\nx: " + "[" * 60_000,
        "id: a\nx: " + "[" * 40 + "]" * 40,
        "id: a\nx: " + "y" * 70_000,
        "id: a\nx: !!int " + "9" * 5000,
    ],
    ids=["alias", "bomb", "loop", "deep", "deep-closed", "large", "huge-number"],
)
def test_yaml_bombs_are_refused(pages: Callable[..., Backlog], notes: Notes, front: str) -> None:
    backlog = pages(a=page(front))
    assert backlog.tasks == ()
    assert len(notes(backlog, "refused")) == 1


@pytest.mark.parametrize("edges", ["[true]", "{a: b}", "[[a]]", "['']"])
def test_an_edge_that_cannot_be_read_holds_its_task(
    pages: Callable[..., Backlog], notes: Notes, edges: str
) -> None:
    backlog = pages(a=page(f"id: a\ndepends_on: {edges}"))
    assert backlog.tasks[0].outcome == "hold"
    assert notes(backlog, "refused")[0].fault


def test_an_empty_list_of_edges_is_none(pages: Callable[..., Backlog]) -> None:
    assert pages(a=page("id: a\ndepends_on:\n"), b=page("id: b\ndepends_on: []")).notes == ()


def test_a_single_file_is_a_backlog_too(write: Write) -> None:
    backlog = read(write("one.md", page("id: only")))
    assert (backlog.format, backlog.tasks[0].work_id) == ("frontmatter", "only")


def test_hidden_names_and_links_are_not_followed(
    write: Write, tmp_path: Path, notes: Notes
) -> None:
    write("d/.git/a.md", page("id: hidden"))
    outside = write("outside.md", page("id: outside"))
    (tmp_path / "d" / "link.md").symlink_to(outside)
    backlog = read(tmp_path / "d")
    assert backlog.tasks == ()
    assert [note.reason for note in notes(backlog, "refused")] == [
        "links and special files are not followed"
    ]


def test_members_of_a_tar_that_are_no_files_are_named(write: Write, notes: Notes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        link = tarfile.TarInfo("../../etc/a.md")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        for content in ("id: one", "id: two"):
            member = tarfile.TarInfo("same.md")
            data = page(content).encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    backlog = read(write("odd.tar", out.getvalue()))
    assert [task.work_id for task in backlog.tasks] == ["one"]
    assert [(str(n.place), n.fault) for n in notes(backlog, "refused")] == [
        ("../../etc/a.md", True),
        ("same.md", True),
    ]


def test_a_tar_that_breaks_off_gives_what_it_has_and_says_so(write: Write, notes: Notes) -> None:
    whole = tar_of({"a.md": page("id: a"), "b.md": page("id: b", "x" * 20_000)})
    backlog = read(write("cut.tar", whole[:3000]))
    assert [task.work_id for task in backlog.tasks] == ["a"]
    assert "damaged" in notes(backlog, "refused")[0].reason


def test_a_folder_without_tasks_says_so(tmp_path: Path, notes: Notes) -> None:
    (tmp_path / "empty").mkdir()
    assert "no task file" in notes(read(tmp_path / "empty"), "noted")[0].reason


def test_the_digest_of_a_directory_follows_its_task_files(write: Write, tmp_path: Path) -> None:
    write("d/a.md", page("id: a"))
    first = read(tmp_path / "d").digest
    write("d/other.txt", "x")
    assert read(tmp_path / "d").digest == first
    write("d/a.md", page("id: a", "changed"))
    assert read(tmp_path / "d").digest != first


def test_stop_raises_inside_an_archive_too(write: Write) -> None:
    with pytest.raises(ImportStopped, match=r"bad\.md"):
        read(write("t.tar", tar_of({"bad.md": page("name: x")})), on_error="stop")


@pytest.mark.parametrize("at", range(0, 512, 7))
def test_a_tar_with_any_byte_changed_is_read_or_refused(write: Write, at: int) -> None:
    data = bytearray(tar_of({"a.md": page("id: a")}))
    data[at] ^= 0xFF
    backlog = read(write("t.tar", bytes(data)), "frontmatter")
    assert backlog.tasks or backlog.notes
