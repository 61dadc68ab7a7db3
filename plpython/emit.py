"""Turns the modules of eve_plpython into SQL: sql/validate.sql, sql/plan.sql, sql/estimate.sql.

    python plpython/emit.py            rewrite them
    python plpython/emit.py --check    exit 1 when one of them differs

The server needs nothing of ours on its Python path: a function carries the whole source of its
module, which is run once a session and kept in the function's SD. The COMMENT of a function is the
docstring of the Python function that it calls, so that it is written once.
"""

from __future__ import annotations

import argparse
import ast
import io
import symtable
import sys
import textwrap
import tokenize
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUOTE = "$python$"
WIDTH = 120


class Fault(Exception):
    """A module that cannot be the body of a function."""


@dataclass(frozen=True)
class Function:
    """A function of schema eve and the Python function of its module that answers."""

    name: str
    arguments: tuple[tuple[str, str], ...]  # name, type
    returns: str
    volatility: str
    calls: str

    @property
    def signature(self) -> str:
        return f"eve.{self.name}({', '.join(kind for _, kind in self.arguments)})"


FILES: dict[str, tuple[str, tuple[Function, ...]]] = {
    "validate": (
        "payloads against JSON Schema 2020-12, and schemas against their meta-schema",
        (
            Function("_schema_fault", (("schema", "jsonb"),), "text", "stable", "schema_fault"),
            Function(
                "_jsonschema_faults",
                (("schema", "jsonb"), ("digest", "bytea"), ("payload", "jsonb")),
                "jsonb", "stable", "jsonschema_faults",
            ),
        ),
    ),
    "plan": (
        "what is wrong with a plan, and what it comes to",
        (
            Function(
                "_plan_faults", (("plan", "jsonb"), ("known", "text[]")),
                "jsonb", "immutable", "plan_faults",
            ),
        ),
    ),
    "estimate": (
        "how long until work starts that is behind other work",
        (
            Function(
                "_start_delay",
                (
                    ("ahead", "bigint"), ("completions", "bigint[]"), ("seconds", "float8[]"),
                    ("quantile", "float8"),
                ),
                "float8", "immutable", "start_delay",
            ),
        ),
    ),
}  # fmt: skip


def check(source: str, taken: set[str]) -> None:
    """Refuses what means something else once the module is the body of a function."""
    if QUOTE in source:
        raise Fault(f"the source has the quote {QUOTE}")
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row = token.start[0]
        text = token.type not in (tokenize.NL, tokenize.NEWLINE) and row not in docstrings
        if text and "\n" in token.string:
            raise Fault(f"line {row}: PL/Python would indent the lines of this text")
        if token.type == tokenize.NAME and token.string in ("global", "nonlocal"):
            raise Fault(f"line {row}: a body has no globals of its own")
    for symbol in symtable.symtable(source, "module", "exec").get_symbols():
        if symbol.get_name() in taken and (symbol.is_assigned() or symbol.is_imported()):
            raise Fault(f"{symbol.get_name()} is an argument of the function")


def without_future(source: str) -> str:
    """A body cannot begin with a __future__ import; annotations must do without."""
    return source.replace("from __future__ import annotations\n\n", "", 1)


def promise(source: str, name: str) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            if text := ast.get_docstring(node):
                return " ".join(text.split())
            raise Fault(f"{name} has no docstring")
    raise Fault(f"there is no function {name}")


def definition(function: Function, source: str) -> str:
    check(source, {name for name, _ in function.arguments})
    words = ", ".join(name for name, _ in function.arguments)
    body = textwrap.indent(without_future(source).rstrip("\n"), "    ")
    typed = ", ".join(f"{name} {kind}" for name, kind in function.arguments)
    comment = promise(source, function.calls).replace("'", "''")
    return f"""\
create function eve.{function.name}({typed})
returns {function.returns}
language plpython3u
{function.volatility}
as {QUOTE}
if "answer" not in SD:
{body}

    SD["answer"] = {function.calls}
return SD["answer"]({words})
{QUOTE};

comment on function {function.signature} is
'{comment}';

alter function {function.signature} owner to eve_owner;
revoke all on function {function.signature} from public;
"""


def emit(name: str) -> str:
    idea, functions = FILES[name]
    source = (HERE / "eve_plpython" / f"{name}.py").read_text(encoding="utf-8")
    made = "\n".join(definition(function, source) for function in functions)
    head = f"-- {name}.sql · {idea}."
    origin = f"-- generated by plpython/emit.py from plpython/eve_plpython/{name}.py; do not edit"
    text = f"{head}\n{origin}\nbegin;\n\n{made}\ncommit;\n"
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > WIDTH and not line.startswith("'"):
            raise Fault(f"{name}.sql:{number} is {len(line)} wide")
    return text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    drifted = 0
    for name in FILES:
        path = HERE / "sql" / f"{name}.sql"
        text = emit(name)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        drifted += 1
        if options.check:
            print(f"plpython/sql/{name}.sql: drifted, run `make build`")
        else:
            path.write_text(text, encoding="utf-8")
            print(path)
    return 1 if options.check and drifted else 0


if __name__ == "__main__":
    sys.exit(main())
