"""Errors of msgspec in plain words: which field, the value found, the values allowed. Pure.

Modules import this when a text cannot be decoded, not before: most commands never need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from liza.model.statuses import STATUS_SYNONYMS
from liza.model.value_classes import Value
from liza.text.formats import did_you_mean

_TYPE_NAMES: Final = {
    "array": "a list",
    "object": "a mapping",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_MAX_KEYS: Final = 20
"""Maximum number of keys that a message lists."""


class TypeProblem(Value):
    """A value that a type does not allow. ``path`` is empty for the whole value."""

    path: str
    actual: str
    expected: str

    def __str__(self) -> str:
        subject = f"{self.path} is " if self.path else "it is "
        return f"{subject}{self.actual}, expected {self.expected}"


def describe_decode_error(error: Exception, kind: Any) -> str:
    """Return one sentence about an error of decoding a value of the type ``kind``."""
    if isinstance(error, msgspec.ValidationError):
        return str(find_problem(error, kind))
    text = str(error)
    return text[:1].lower() + text[1:]


def find_problem(error: msgspec.ValidationError, kind: Any) -> TypeProblem:
    """Return what msgspec found in a value of the type ``kind``. A word that is not allowed gets a suggestion."""
    reason, _, path = str(error).partition(" - at `")
    path = path.removeprefix("key` in `").strip("`").removeprefix("$").removeprefix(".")
    if match := re.fullmatch("Invalid enum value (.*)", reason, re.DOTALL):
        words = list(_allowed_words(_type_at(kind, path)))
        suggestion = did_you_mean(match[1].strip("'"), words, STATUS_SYNONYMS)
        return TypeProblem(path, match[1], f"one of {', '.join(words)}{suggestion}")
    if match := re.fullmatch("Expected `(.*)`, got `(.*)`", reason):
        wanted = " or ".join(_TYPE_NAMES.get(name, name) for name in match[1].split(" | "))
        listed = _keys_text(_type_at(kind, path)) if "object" in match[1].split(" | ") else ""
        return TypeProblem(path, _TYPE_NAMES.get(match[2], match[2]), wanted + listed)
    if match := re.fullmatch("Object missing required field `(.*)`", reason):
        return TypeProblem(f"{path}.{match[1]}".strip("."), "missing", "a value")
    if match := re.fullmatch("Object contains unknown field `(.*)`", reason):
        keys = [key for struct in _structs(_type_at(kind, path)) for key in _fields(struct)]
        suggestion = did_you_mean(match[1], keys)
        return TypeProblem(f"{path}.{match[1]}".strip("."), "unknown", f"one of {', '.join(keys)}{suggestion}")
    if "RFC3339" in reason:
        return TypeProblem(path, "no time", "a time such as 2026-01-01T12:00:00Z")
    return TypeProblem(path, reason, "a value that can be read")


def allowed_words(kind: Any, path: str) -> tuple[str, ...]:
    """Return the words that are allowed at a path below ``kind``: of an enumeration, or of a truth value."""
    current = _type_at(kind, path)
    is_truth = any(isinstance(part, inspect.BoolType) for part in _parts(current))
    return (*_allowed_words(current), *(("true", "false") if is_truth else ()))


def _type_at(kind: Any, path: str) -> Any:
    """Return the description of the type at a path below ``kind``, such as ``tasks[0].status``; None if unknown."""
    current: Any = inspect.type_info(kind)
    for name in re.findall(r"(?:^|\.)([A-Za-z_]\w*)", path):
        current = next((fields[name] for struct in _structs(current) if name in (fields := _fields(struct))), None)
    return current


def _fields(struct: Any) -> dict[str, Any]:
    return {field.encode_name: field.type for field in struct.fields}


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type and the types inside its unions, lists and mappings, but not the fields of structs."""
    if kind is None:
        return
    yield kind
    inner = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    for name in ("item_type", "key_type", "value_type"):
        inner += [getattr(kind, name)] if hasattr(kind, name) else []
    for part in inner:
        yield from _parts(part)


def _structs(kind: Any) -> Iterator[Any]:
    return (part for part in _parts(kind) if isinstance(part, inspect.StructType))


def _allowed_words(kind: Any) -> Iterator[str]:
    """Yield the words of the enumerations and literals in a type."""
    for part in _parts(kind):
        if isinstance(part, inspect.EnumType):
            yield from (str(member.value) for member in part.cls)
        elif isinstance(part, inspect.LiteralType):
            yield from map(str, part.values)


def _keys_text(kind: Any) -> str:
    """Return the keys of a mapping, for a person who gave a single value instead; empty if there are many."""
    keys = [key for struct in _structs(kind) for key in _fields(struct)]
    return f" with some of: {', '.join(keys)}" if 0 < len(keys) <= _MAX_KEYS else ""
