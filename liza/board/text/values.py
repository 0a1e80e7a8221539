"""Between the model's frozen values and the plain values that stand in YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec

from liza.rules import model, settings
from liza.rules.errors import BoardUnreadable

ABSENT: Final = object()
"""Stands for a key that is not there; None would be a value."""

_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
_ZONELESS_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?)?")
_OLD_REVIEWER_ID: Final = re.compile(r"(?:code_)?reviewer-([0-9]+(?:\.[0-9]+)?)")
_AGENT_KEYS: Final = frozenset(("agent", "run", "review_run", "previous_run", "assigned_to", "reviewing_by")) | {
    "approved_by",
    "failed_by",
    "reporter",
    "by",
    "for",
}


Revision = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_MAX_REVISION: Final = 1 << 50


def check_revision(revision: int) -> None:
    """A number that somebody typed, from which nobody could count on. Raises BoardUnreadable."""
    if not 0 <= revision <= _MAX_REVISION:
        said = str(revision) if -_MAX_REVISION < revision < 1 << 100 else "with more digits than any"
        raise BoardUnreadable(
            f".liza/state.yaml: revision: {said} is no revision", "liza edit, or: liza restore --last-good"
        )


def format_time(moment: datetime) -> str:
    """A time as the board writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime(_TIME_FORMAT)


@cache
def struct_fields(kind: Any) -> dict[str, Any]:
    """The names of a struct as they stand in the file, in the order of the model, with their types."""
    hints = get_type_hints(kind)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


@cache
def find_struct(kind: Any) -> Any:
    """The struct in ``Struct | None``, ``tuple[Struct, ...]`` or ``dict[str, Struct]``; None where there is none."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := find_struct(part)) is not None), None)


def _has_type(kind: Any, wanted: Any) -> bool:
    return kind is wanted or any(_has_type(part, wanted) for part in get_args(kind))


@cache
def find_names_with_type(wanted: Any) -> frozenset[str]:
    """Every name in the model whose type mentions ``wanted``."""
    kinds = [kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return frozenset(name for kind in kinds for name, type_ in struct_fields(kind).items() if _has_type(type_, wanted))


FREE_FORM_KEYS: Final = find_names_with_type(Any)
"""Names below which anything may stand: there, plain scalars mean what YAML 1.2 says they mean."""
TIME_KEYS: Final = find_names_with_type(datetime)


def normalize_scalar(key: str, text: str) -> str:
    """A scalar under ``key`` as the model wants it: old spellings of the reviewer, times without a zone as UTC."""
    if key in TIME_KEYS:
        if _ZONELESS_TIME.fullmatch(text):
            return f"{text}T00:00:00Z" if len(text) == 10 else f"{text}Z"
    elif key == "role":
        return "code-reviewer" if text in ("code_reviewer", "reviewer") else text
    elif key in _AGENT_KEYS and "reviewer" in text and (found := _OLD_REVIEWER_ID.fullmatch(text)):
        return f"code-reviewer-{found.group(1)}"
    return text


@cache
def _field_layout(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Attribute, name in the file and default of every field of a struct."""
    return tuple(
        (
            field.name,
            field.encode_name,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def to_plain(value: Any) -> Any:
    """The plain value of a part of the model: dicts, lists, scalars; fields at their default are left out."""
    if isinstance(value, msgspec.Struct):
        plain = {}
        for name, written, default in _field_layout(type(value)):
            found = getattr(value, name)
            if found is not default and found != default:
                plain[written] = to_plain(found)
        return plain
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [to_plain(item) for item in value]
    return value


_TYPE_NAMES: Final = {
    "array": "a list",
    "object": "a mapping",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def describe_error(error: msgspec.ValidationError, kind: Any) -> tuple[str, str, str]:
    """What an error of ``build`` says, for people: the place below ``kind``, what was found there, what is wanted."""
    said, _, path = str(error).partition(" - at `$")
    place = path.strip(".`")
    if found := re.fullmatch("Invalid enum value (.*)", said, re.DOTALL):
        return place, found[1], f"one of {', '.join(_enum_values(kind, place))}"
    if found := re.fullmatch("Expected `(.*)`, got `(.*)`", said):
        wanted = " or ".join(_TYPE_NAMES.get(one, one) for one in found[1].split(" | "))
        return place, _TYPE_NAMES.get(found[2], found[2]), wanted + _allowed_keys(kind, place, found[1])
    if found := re.fullmatch("Object missing required field `(.*)`", said):
        return f"{place}.{found[1]}".strip("."), "missing", "a value"
    if "RFC3339" in said:
        return place, "no time", "a time such as 2026-01-01T12:00:00Z"
    return place, said, "a value that can be read"


def _allowed_keys(kind: Any, place: str, wanted: str) -> str:
    """The keys that a mapping of settings may have: whoever gave one value in its place does not know them."""
    outer, _, name = place.rpartition(".")
    if wanted != "object" or name not in settings.NESTED_SETTINGS or (outer or kind) not in ("config", model.Config):
        return ""
    return f" with some of: {', '.join(struct_fields(settings.NESTED_SETTINGS[name]))}"


def _enum_values(kind: Any, place: str) -> list[str]:
    """The values that an enum has, which stands at a place below ``kind``."""
    for name in re.findall(r"(?:^|\.)([A-Za-z_]\w*)", place):
        kind = struct_fields(find_struct(kind))[name]
    enum = next(one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, Enum))
    return [str(one.value) for one in enum]


def from_plain(plain: Any, kind: Any) -> Any:
    """The model's value for a plain one. Raises msgspec.ValidationError with the place and the reason."""
    return msgspec.convert(plain, kind, strict=False)
