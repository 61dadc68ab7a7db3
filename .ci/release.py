"""Says whether the names of a release agree: Sqitch tags, git tag, extensions, package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str | None]:
    """Each name of the release that HEAD is, None where there is none."""

    def found(pattern: str, path: str) -> str | None:
        hits: list[str] = re.findall(
            pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
        )
        return hits[-1] if hits else None

    tag = subprocess.run(
        ["git", "describe", "--tags", "--exact-match", "--match", "v*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "sqitch tag": found(r"^@v(\S+)", "sqitch.plan"),
        "of plpython": found(r"^@v(\S+)", "plpython/sqitch.plan"),
        "git tag": tag.removeprefix("v") or None,
        "extension": found(r"^default_version = '(.+)'", "sql/eve.control"),
        "eve_plpython": found(r"^default_version = '(.+)'", "plpython/sql/eve_plpython.control"),
        "package": found(r'^version = "(.+)"', "pyproject.toml"),
    }


def main() -> int:
    said = versions()
    agreed = len(set(said.values())) == 1 and None not in said.values()
    for name, version in said.items():
        print(f"{name:<12} {version or '(none)'}")
    print(f"release: {said['package']}" if agreed else "release: they do not agree")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
