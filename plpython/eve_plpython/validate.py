"""JSON Schema 2020-12 by the library jsonschema, 4.10 or newer, and never a network.

References are resolved here and not by the library, so that both its old resolver and its new
registry are out of the way: a reference leads into the schema it stands in, or is a fault of it.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from fractions import Fraction
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FAULTS = 20  # faults that are answered
LOOKED_AT = 200  # faults that are looked for
WIDTH = 200  # characters of a message
PATH_WIDTH = 300  # characters of a path
KEPT = 64  # compiled schemas a session keeps

ONE_SCHEMA = {
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
SCHEMAS_IN_ORDER = {"allOf", "anyOf", "oneOf", "prefixItems"}
SCHEMAS_BY_NAME = {
    "$defs", "definitions", "dependentSchemas", "patternProperties", "properties",
}  # fmt: skip

TIME = re.compile(
    r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
DURATION = re.compile(
    r"P(?:\d+W|(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)?"
    r"(?:T(?:\d+S|\d+M(?:\d+S)?|\d+H(?:\d+M(?:\d+S)?)?))?)(?<!P)",
    re.ASCII,
)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
RELATIVE_POINTER = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)")
REFERENCE = re.compile(r"(?:[!#$&-;=?-Z\[\]_a-z~]|%[0-9A-Fa-f]{2})*")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


class Faulty(ValueError):
    """The schema is not one: the sentence that says why."""


def is_date(text: str) -> bool:
    return DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))


def is_time(text: str) -> bool:
    found = TIME.fullmatch(text)
    if not found:
        return False
    hour, minute, second, sign, hours, minutes = found.groups()
    if second != "60":
        return True
    # A leap second is the last of a UTC day.
    offset = int(hours or 0) * 60 + int(minutes or 0)
    utc = int(hour) * 60 + int(minute) - (-offset if sign == "-" else offset)
    return utc % 1440 == 1439


def is_date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and is_date(text[:10]) and is_time(text[11:])


def is_duration(text: str) -> bool:
    return DURATION.fullmatch(text) is not None


def is_email(text: str) -> bool:
    local, _, domain = text.rpartition("@")
    return bool(local and domain)


def is_hostname(text: str) -> bool:
    return len(text) <= 253 and all(LABEL.fullmatch(label) for label in text.split("."))


def is_ipv4(text: str) -> bool:
    return bool(ipaddress.IPv4Address(text).packed)


def is_ipv6(text: str) -> bool:
    return "%" not in text and bool(ipaddress.IPv6Address(text).packed)


def is_uuid(text: str) -> bool:
    return UUID.fullmatch(text) is not None


def is_json_pointer(text: str) -> bool:
    return POINTER.fullmatch(text) is not None


def is_relative_json_pointer(text: str) -> bool:
    return RELATIVE_POINTER.fullmatch(text) is not None


def is_uri_reference(text: str) -> bool:
    return REFERENCE.fullmatch(text) is not None and urlsplit(text) is not None


def is_uri(text: str) -> bool:
    return SCHEME.match(text) is not None and is_uri_reference(text)


def is_regex(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def for_strings(check: Callable[[str], bool]) -> Callable[[object], bool]:
    """Formats speak of strings alone."""
    return lambda value: not isinstance(value, str) or check(value)


FORMATS = FormatChecker(formats=())  # none that depends on what else is installed
for name, check in {
    "date": is_date,
    "date-time": is_date_time,
    "duration": is_duration,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "json-pointer": is_json_pointer,
    "regex": is_regex,
    "relative-json-pointer": is_relative_json_pointer,
    "time": is_time,
    "uri": is_uri,
    "uri-reference": is_uri_reference,
    "uuid": is_uuid,
}.items():
    FORMATS.checks(name, raises=ValueError)(for_strings(check))


def cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def dotted(steps: list[str | int]) -> str:
    """A path as people write it: $.a[0].b, and ["odd key"] where a key is no word."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif PLAIN_KEY.fullmatch(step):
            path += f".{step}"
        else:
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
        if len(path) > PATH_WIDTH:
            return cut(path, PATH_WIDTH)
    return path


def in_order(error: ValidationError) -> tuple[object, ...]:
    """By path, numbers as numbers; then by keyword and message."""
    steps = [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in error.path]
    return (steps, str(error.validator), error.message)


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[list[str | int], Any]]:
    """The schemas that stand in the keywords of one, each with the steps that lead there."""
    for keyword, value in schema.items():
        if keyword in ONE_SCHEMA:
            yield [keyword], value
        elif keyword in SCHEMAS_IN_ORDER and isinstance(value, list):
            for n, each in enumerate(value):
                yield [keyword, n], each
        elif keyword in SCHEMAS_BY_NAME and isinstance(value, dict):
            for name, each in value.items():
                yield [keyword, name], each


def check_shape(schema: object, steps: list[str | int]) -> None:
    """Against the meta-schema of 2020-12, patterns as Python's re understands them."""
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=FORMATS)
    error = best_match(meta.iter_errors(schema))
    if error is not None:
        raise Faulty(f"{dotted([*steps, *error.path])}: {error.message}")


def follow(root: object, ref: str, anchors: dict[str, Any]) -> Any:
    """What a reference leads to: `#`, `#/pointer` or `#anchor`; KeyError when it is not there."""
    fragment = unquote(ref.removeprefix("#"))
    if fragment and not fragment.startswith("/"):
        return anchors[fragment]
    found: Any = root
    for part in fragment.split("/")[1:]:
        if isinstance(found, list):
            found = dict(enumerate(found))[int(part)]
        elif isinstance(found, dict):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        else:
            raise KeyError(part)
    return found


def references(root: object) -> dict[str, Any]:
    """Every reference of the schema and what it leads to; raises Faulty when one leads outside."""
    anchors: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    waiting: dict[str, list[str | int]] = {}
    seen: set[int] = set()
    todo: list[tuple[list[str | int], Any]] = [([], root)]
    while todo:
        steps, schema = todo.pop()
        if isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))
            for keyword in ("$id", "$schema"):
                if keyword in schema and schema is not root:
                    raise Faulty(f"{dotted(steps)}: {keyword} may stand in the root alone")
            for keyword in ("$anchor", "$dynamicAnchor"):
                if keyword in schema and anchors.setdefault(schema[keyword], schema) is not schema:
                    raise Faulty(f"{dotted(steps)}: the anchor {schema[keyword]!r} is there twice")
            for keyword in ("$dynamicRef", "$ref"):
                ref, whence = schema.get(keyword), [*steps, keyword]
                if ref is None:
                    continue
                if not ref.startswith("#"):
                    raise Faulty(
                        f"{dotted(whence)}: {cut(ref, 100)!r} leads outside the schema and is never"
                        " fetched, a reference begins with #"
                    )
                if ref not in targets:
                    waiting[ref] = whence
            todo += (([*steps, *more], each) for more, each in subschemas(schema))
        if todo:
            continue
        for ref, whence in waiting.items():
            try:
                targets[ref] = follow(root, ref, anchors)
            except (KeyError, ValueError):
                raise Faulty(f"{dotted(whence)}: {ref!r} leads nowhere") from None
            if id(targets[ref]) not in seen:
                check_shape(targets[ref], whence)  # it stands where no keyword has a schema
                todo.append((whence, targets[ref]))
        waiting = {}
    return targets


def compiled(text: str | None) -> Draft202012Validator:
    """A validator for the schema; raises Faulty with one sentence when it is none."""
    if text is None:
        raise Faulty("$: the schema is null")
    try:
        schema = json.loads(text)
        check_shape(schema, [])
        if isinstance(schema, dict):
            schema.pop("$id", None)  # a name, nothing that references may start from
            dialect = schema.pop("$schema", DIALECT)
            if dialect not in (DIALECT, DIALECT + "#"):
                raise Faulty(f"$.$schema: {dialect!r} is not {DIALECT}")
        targets = references(schema)
    except RecursionError:
        raise Faulty("$: nested too deep") from None

    def refer(validator: Any, ref: Any, instance: object, _: object) -> Iterator[ValidationError]:
        yield from validator.descend(instance, targets[ref])

    def multiple(
        validator: Any, of: float, instance: float, _: object
    ) -> Iterator[ValidationError]:
        """As decimals are written: 19.99 is a multiple of 0.01."""
        if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(of)):
            yield ValidationError(f"{instance!r} is not a multiple of {of!r}")

    def ignore(*_: object) -> tuple[()]:
        """4.10 still has a keyword that 2020-12 has no more."""
        return ()

    extending: Any = extend  # not typed in full
    kind = extending(
        Draft202012Validator,
        {
            "$ref": refer,
            "$dynamicRef": refer,
            "multipleOf": multiple,
            "additionalItems": ignore,
        },
    )
    made: Draft202012Validator = kind(schema, format_checker=FORMATS)
    return made


COMPILED: dict[bytes, Draft202012Validator] = {}


def kept(text: str | None, digest: bytes | None) -> Draft202012Validator:
    """The validator of this digest, made once a session; the least recently used ones go."""
    validator = COMPILED.pop(digest, None) if digest is not None else None
    if validator is None:
        validator = compiled(text)
    if digest is not None:
        COMPILED[digest] = validator
        while len(COMPILED) > KEPT:
            del COMPILED[next(iter(COMPILED))]
    return validator


def fault(path: str, message: str, keyword: str) -> dict[str, str]:
    return {"path": path, "message": cut(message), "keyword": keyword}


def found_by(validator: Draft202012Validator, text: str | None) -> list[dict[str, str]]:
    if text is None:
        return [fault("$", "the payload is null", "payload")]
    errors = sorted(islice(validator.iter_errors(json.loads(text)), LOOKED_AT), key=in_order)
    return [
        fault(dotted(list(e.path)), e.message, str(e.validator or "false")) for e in errors[:FAULTS]
    ]


def schema_fault(schema: str | None) -> str | None:
    """Why a document is no JSON Schema 2020-12, in one sentence of at most 300 characters; null
    when it is one. Source: the meta-schema that the library jsonschema carries. A schema is whole:
    a reference that does not begin with # is a fault and never fetched, $id and $schema stand in
    the root alone, another dialect is refused. Patterns are those of Python's re. Raises nothing.
    """
    try:
        compiled(schema)
    except Faulty as faulty:
        return cut(str(faulty), 300)
    except Exception as error:  # noqa: BLE001 - a schema that the library stumbles over is none
        return cut(f"$: {type(error).__name__}: {error}", 300)
    return None


def jsonschema_faults(schema: str | None, digest: bytes | None, payload: str | None) -> str:
    """The faults of a payload under a JSON Schema 2020-12: [{path, message, keyword}] by path, at
    most 20, messages of at most 200 characters; [] means valid, and nothing else does. Source: the
    library jsonschema. Keyword schema: the schema itself is faulty, or refers to itself without
    end; keyword payload: the payload cannot be read or judged. Formats that the standard library
    can judge are asserted. The digest names the schema: its validator is kept, 64 a session; null
    keeps nothing. Raises nothing. Neither statement_timeout nor a cancel interrupts Python: a
    pattern that backtracks without end holds the session until its process is killed, so a schema
    is trusted as far as whoever defined its class.
    """
    try:
        faults = found_by(kept(schema, digest), payload)
    except Faulty as faulty:
        faults = [fault("$", f"the schema is faulty: {faulty}", "schema")]
    except RecursionError:
        faults = [fault("$", "nested too deep, or the schema refers to itself", "schema")]
    except Exception as error:  # noqa: BLE001 - what the library stumbles over is never a pass
        faults = [fault("$", f"{type(error).__name__}: {error}", "payload")]
    return json.dumps(faults)
