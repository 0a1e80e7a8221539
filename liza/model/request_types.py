"""Base classes and types of fields of the requests and answers of the worker API. Each struct is declared beside its
function. Fields may be added in later versions, none is renamed or removed in ``/v1``.
"""

from typing import Annotated

import msgspec

MAX_TEXT = 64_000
"""Maximum length of a prompt, or of a text of a verb, in characters."""
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]
Label = Annotated[str, msgspec.Meta(max_length=200)]
Lines = Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)]
RunId = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z-]{0,40}-\d{1,9}\.\d{1,9}$", examples=["coder-1.7"])]
"""A run of Liza: one session of one agent, from its start to its end."""


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the requests. An unknown field is refused by its name."""


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the answers. Every field is present in JSON."""
