"""Puts the folded SQL into the package before a wheel or an editable install is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class FoldedSql(BuildHookInterface[Any]):
    """`eve install` runs eve_queue/eve.sql, which sql/build.py folds from sqitch.plan."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        build = Path(self.root) / "sql" / "build.py"
        subprocess.run([sys.executable, str(build), "plain"], check=True)
