"""Which importer reads what, and what nobody reads."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from eve_queue.importers import Refused, UnknownFormat, detect, read
from importers.made import Write


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"id": "a", "title": "t"}\n', "beads"),
        ('{"_type": "issue", "id": "a"}\n', "beads"),
        ('<<<<<<< ours\n{"id": "a"}\n', "beads"),
        ('broken\n{"id": "a"}\n', "beads"),
        ('{"number": 1, "title": "t"}\n', "github"),
        ('[{"number": 1}]', "github"),
        ("[]", "github"),
        ('{"tasks": []}', "taskmaster"),
        ('{\n "main": {"tasks": [{"id": 1}]}\n}', "taskmaster"),
        ("---\nid: a\n---\n", "frontmatter"),
        ("Package: a\nVersion: 1\n", "debian"),
        ("\nSection: x\nPackage: a\n", "debian"),
    ],
)
def test_the_content_says_the_format(content: str, found: str) -> None:
    assert detect(content.encode()) == found
    assert detect(b"\xef\xbb\xbf" + content.encode()) == found


@pytest.mark.parametrize("content", ["", "hello", "{}", '{"a": 1}', "\x00\x01", "<html>"])
def test_unknown_content_is_said_with_the_choices(content: str) -> None:
    with pytest.raises(UnknownFormat, match="beads, frontmatter, debian, github, taskmaster"):
        detect(content.encode())


def test_a_name_helps_where_the_content_says_nothing(write: Write) -> None:
    backlog = read(write("empty.jsonl", ""))
    assert (backlog.format, backlog.tasks, backlog.notes) == ("beads", (), ())


def test_a_wrong_word_is_no_format(write: Write, tmp_path: Path) -> None:
    path = write("a.jsonl", '{"id": "a"}')
    with pytest.raises(UnknownFormat, match="jira"):
        read(path, "jira")  # type: ignore[arg-type]
    with pytest.raises(UnknownFormat, match="directory"):
        read(tmp_path, "beads")
    with pytest.raises(ValueError, match="on_error"):
        read(path, on_error="ignore")  # type: ignore[arg-type]


def test_a_missing_file_is_the_system_s_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read(write: Write, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b'{"id": "a"}\n')
    backlog = read(write("a.packed", packed))
    assert backlog.tasks[0].work_id == "a"
    assert backlog.digest == hashlib.sha256(packed).hexdigest()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_that_break_off_are_refused(
    write: Write, pack: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(Refused, match="damaged"):
        read(write("a.packed", pack(b'{"id": "a"}\n' * 100)[:-9]))


def test_the_same_source_gives_the_same_backlog(write: Write) -> None:
    path = write("a.jsonl", "".join(json.dumps({"id": str(n)}) + "\n" for n in range(50)))
    assert read(path) == read(path)
    assert read(path).name == "a"
    assert [task.work_id for task in read(path).tasks] == [str(n) for n in range(50)]
