"""Base classes for objects with typed fields, and how such an object is copied, read as a dict or decoded.

They are structs of msgspec. ``@dataclass`` generates the methods of each class as source text and compiles it: 0.6 ms
per class at the start of a command, a struct takes 0.01 ms. See specs/decisions/016-structs-instead-of-dataclasses.md.
"""

from __future__ import annotations

from _thread import allocate_lock  # rules do not import threading
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, dataclass_transform

import msgspec
from msgspec import field as field
from msgspec.structs import asdict as asdict

if TYPE_CHECKING:
    # mypy checks the fields that this one changes; those of msgspec's are not typed.
    from dataclasses import replace as replace
else:
    from msgspec.structs import replace as replace

T = TypeVar("T")
_decodable: set[Any] = set()
_building = allocate_lock()


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True):
    """An immutable object, compared by its fields. It is hashable if all fields are.

    A class with a ``cached_property`` needs ``dict=True``.
    """


@dataclass_transform(field_specifiers=(msgspec.field,))
class Mutable(msgspec.Struct):
    """An object whose fields can be set, compared by its fields and not hashable.

    With ``eq=False`` a class is compared by identity and hashable.
    """


AwareDatetime = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with a time zone. A time without one cannot be compared with it."""


class FrozenStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of everything on the board, and of the records of runs."""


def decodable(kind: T) -> T:
    """Return the type, for a function of msgspec that decodes it. Safe in several threads.

    msgspec 0.22 describes a type for itself when it is decoded for the first time, and uses the description in other
    threads before it is complete: the process ends with SIGSEGV. Here one thread at a time lets it do that.
    """
    if kind not in _decodable:
        with _building:
            msgspec.json.Decoder(kind)
            _decodable.add(kind)
    return kind


MAX_TEXT = 64_000
"""Maximum length of a prompt, or of a text of a verb, in characters."""
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]
Label = Annotated[str, msgspec.Meta(max_length=200)]
Lines = Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)]
RunId = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z-]{0,40}-\d{1,9}\.\d{1,9}$", examples=["coder-1.7"])]
"""A run of Liza: one session of one agent, from its start to its end."""


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the requests of the worker API. An unknown field is refused by its name.

    Fields may be added in later versions; none is renamed or removed in ``/v1``.
    """


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the answers. Every field is present in JSON."""
