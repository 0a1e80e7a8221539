"""Convert between the frozen values of the model and the plain values of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec

from liza.model import model
from liza.model.errors import BoardUnreadable
from liza.model.setting_limits import read_permissions
from liza.model.value_classes import decodable
from liza.text.formats import format_time
from liza.text.undecoded import escape_undecoded

ABSENT: Final = object()
"""Marks a missing key; None is a value."""

_ZONELESS_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d+)?)?")
_OLD_REVIEWER_ID: Final = re.compile(r"(?:code_)?reviewer-([0-9]+(?:\.[0-9]+)?)")
_AGENT_KEYS: Final = frozenset(("agent", "run", "review_run", "previous_run", "assigned_to", "reviewing_by")) | {
    "approved_by",
    "failed_by",
    "reporter",
    "by",
    "for",
}

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_MAX_NUMBER_LENGTH: Final = 300  # characters; longer scalars stay text


Revision = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
_MAX_REVISION: Final = 1 << 50  # far below the limit of ``Revision``, so that counting on never reaches it


def check_revision(revision: int) -> None:
    """Raise BoardUnreadable if a revision, perhaps typed by a person, is negative or too large to count on."""
    if not 0 <= revision <= _MAX_REVISION:
        shown = str(revision) if -_MAX_REVISION < revision < 1 << 100 else "a number with too many digits"
        raise BoardUnreadable(
            f".liza/state.yaml: revision: {shown} is not a valid revision", "liza restore --last-good"
        )


@cache
def struct_fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a struct by their names in the file, in the order of the model, with their types."""
    hints = get_type_hints(kind)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


@cache
def find_struct(kind: Any) -> Any:
    """Return the struct in ``Struct | None``, ``tuple[Struct, ...]`` or ``dict[str, Struct]``, else None."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((struct for part in get_args(kind) if (struct := find_struct(part)) is not None), None)


def _has_type(kind: Any, wanted: Any) -> bool:
    return kind is wanted or any(_has_type(part, wanted) for part in get_args(kind))


@cache
def find_names_with_type(wanted: Any) -> frozenset[str]:
    """Return every field name of the model whose type contains ``wanted``."""
    kinds = [kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return frozenset(name for kind in kinds for name, type_ in struct_fields(kind).items() if _has_type(type_, wanted))


FREE_FORM_KEYS: Final = find_names_with_type(Any)
"""Fields with free content: plain scalars below them have the types of YAML 1.2."""
TIME_KEYS: Final = find_names_with_type(datetime)


def normalize_scalar(key: str, text: str) -> str:
    """Return a scalar under ``key`` in the current form: old names, times without a zone as UTC."""
    if key in TIME_KEYS:
        if _ZONELESS_TIME.fullmatch(text):
            return f"{text}T00:00:00Z" if len(text) == 10 else f"{text}Z"
    elif key == "role":
        return "code-reviewer" if text in ("code_reviewer", "reviewer") else text
    elif key in _AGENT_KEYS and "reviewer" in text and (match := _OLD_REVIEWER_ID.fullmatch(text)):
        return f"code-reviewer-{match.group(1)}"
    elif key == "permissions":
        return read_permissions(text)
    return text


def parse_plain_scalar(text: str) -> Any:
    """Return the value of a plain scalar by the core schema of YAML 1.2."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) > _MAX_NUMBER_LENGTH:
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


@cache
def _field_layout(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return attribute, name in the file and default of every field of a struct."""
    return tuple(
        (
            field.name,
            field.encode_name,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def to_plain(value: Any) -> Any:
    """Return a model value as dicts, lists and scalars; fields with their default value are left out.

    Bytes in a text that are not UTF-8 are escaped: the file could not have them.
    """
    if type(value) is str:
        return escape_undecoded(value)
    if isinstance(value, msgspec.Struct):
        plain = {}
        for name, written, default in _field_layout(type(value)):
            field_value = getattr(value, name)
            if field_value is not default and field_value != default:
                plain[written] = to_plain(field_value)
        return plain
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {escape_undecoded(str(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [to_plain(item) for item in value]
    return value


def from_plain(plain: Any, kind: Any) -> Any:
    """Return the model value of a plain value. Raises msgspec.ValidationError with path and reason."""
    return msgspec.convert(plain, decodable(kind), strict=False)
