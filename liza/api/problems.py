"""Errors as problem documents (RFC 9457): the same kinds, messages and hints as on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from liza.model.errors import LizaError
from liza.system.liza_path import qualify_command

PROBLEM_TYPE: Final = "application/problem+json"
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "usage": 422,
        "future-time": 422,
        "token-refused": 401,
        "not-yours": 403,
        "unknown-id": 404,
        "refused": 409,
        "fails-in-box": 409,
        "run-over": 410,
        "queue-full": 429,
        "merge-conflict": 409,
        "import-refused": 409,
        "git-failed": 503,
        "board-inconsistent": 503,
        "task-not-writable": 503,
        "board-unreadable": 503,
        "board-too-new": 503,
        "missing": 503,
        "no-account": 503,
        "no-crew": 503,
        "system-refused": 503,
        "lock-timeout": 503,
        "disk-refused": 507,
        "bug": 500,
    }
)
"""HTTP status of each kind of error of ``rules.errors``."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document. ``code`` and ``hint`` are those of `--json` on the command line; ``field`` is the JSON path
    of the invalid value, empty if it is not about one."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""
    field: str = ""


class RequestProblem(Exception):
    """A request that is refused before it reaches a function of Liza."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        hint: str = "",
        field: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(detail)
        self.headers = headers
        self.document = make_problem(status, code, detail, hint, field)


def make_problem(status: int, code: str, detail: str, hint: str = "", field: str = "") -> Problem:
    return Problem(
        type=f"urn:liza:problem:{code}",
        title=code.replace("-", " "),
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        field=field,
    )


def problem_of(error: LizaError) -> Problem:
    """Return the problem document of an error."""
    hint = qualify_command(error.hint or "") or error.hint
    return make_problem(STATUSES.get(error.code, 500), error.code, error.message, hint)


def invalid_body(error: Exception) -> RequestProblem:
    """Return the problem of a body that is not of its type; msgspec's message ends with the path of the field."""
    if isinstance(error, RecursionError):
        return RequestProblem(400, "invalid-request", "the body is nested too deeply")
    detail, separator, path = str(error).rpartition(" - at `")
    if not separator:
        return RequestProblem(400, "invalid-request", str(error), field="$")
    return RequestProblem(400, "invalid-request", detail, field=path.rstrip("`"))
