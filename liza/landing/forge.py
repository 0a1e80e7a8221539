"""Run ``gh`` or ``glab`` without a terminal, outside of the repository, within a time limit; decode what they print.

The words of each call are rows of `forges.toml`. Texts of strangers in the answers are cleaned here.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from liza.git.rules.remote_urls import Forge, RemoteRepository, hide_credentials
from liza.model.errors import ForgeSlow, LoginMissing, Missing
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable
from liza.system import crash_points, program_path
from liza.system.limited_program import kill_group, run_limited
from liza.text.quoting import sanitize

FORGE_LIMIT = 60.0
"""Seconds for one call."""
_ENVIRONMENT = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "GLAB_CHECK_UPDATE": "false",
    "NO_PROMPT": "1",
    "PAGER": "cat",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
}
_RATE_WORDS = ("rate limit", "http 429")
_LOGIN_WORDS = ("auth login", "GH_TOKEN", "not logged", "401", "authentication")
PAGE_SIZE = 100
MAX_PAGES = 20
"""Pages of one list. A longer list is an error, never a part of the list."""
_ADDRESSES = frozenset({"project", "source", "users"})
"""Values that are parts of an address already."""
_MAX_ADDRESS = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
T = TypeVar("T")


class ForgeCall(Value):
    """The call of a program for a verb.

    ``words``: the command line after the name of the program, in which ``{name}`` is a value of the caller. ``method``
    and ``send``: the HTTP method, and the JSON body: the value of the caller for each field. ``what``: the noun of the
    answer. ``fields``: where each field is in a row of the answer: ``a.b`` is a field of a field, and of ``a|b`` the
    first that is not empty counts. ``is_list``: the answer has many rows, on pages.
    """

    words: str = ""
    what: str = "pull request"
    fields: Mapping[str, str] = {}
    is_list: bool = False
    method: str = "GET"
    send: Mapping[str, str] = {}


def project_address(repository: RemoteRepository) -> str:
    """Return a repository as addresses of the REST interface name it."""
    return repository.path if repository.forge is Forge.GITHUB else quote(repository.path, safe="")


def is_installed(forge: Forge) -> bool:
    """Return whether the program is in PATH."""
    try:
        program_path.find_program(forge)
    except Missing:
        return False
    return True


def call_forge(repository: RemoteRepository, verb: str, *, size: int | None = None, **values: Any) -> str:
    """Return what the program of the forge prints for a verb; with ``size`` only the last bytes of it: a log is long.

    ``values`` are those that the verb names. Raises Missing if the program is not installed, fails, or does not end in
    time.
    """
    call, forge = _find_call(repository, verb), Forge(str(repository.forge))
    command = _make_command(repository, call, values)
    # As input: a long text does not fit on a command line.
    data = msgspec.json.encode({name: values[key] for name, key in call.send.items() if values[key] is not None})
    if size is None:
        return _run(forge, command, data if call.send else b"", subprocess.PIPE)
    with tempfile.TemporaryFile() as output:
        _run(forge, command, b"", output.fileno())
        output.seek(max(0, output.seek(0, os.SEEK_END) - size))
        return output.read(size).decode("utf-8", "replace")


def read_rows(repository: RemoteRepository, verb: str, kind: type[T], **values: Any) -> tuple[T, ...]:
    """Return the rows of the answer to a verb, as structs: one row, or those on all pages of a list.

    Raises Missing, also for a list that is too long.
    """
    is_list = _find_call(repository, verb).is_list
    rows = _read_pages(repository, verb, values) if is_list else [_read(repository, verb, values)]
    return tuple(to_struct(repository, verb, row, kind) for row in rows)


def to_struct(repository: RemoteRepository, verb: str, row: Any, kind: type[T]) -> T:
    """Return the fields of a row of an answer as a struct. Raises Missing if its values are of other types."""
    picked = _pick_fields(row, _find_call(repository, verb).fields)
    try:
        return msgspec.convert(picked, decodable(kind), strict=False)
    except msgspec.ValidationError as error:
        raise _unreadable(repository, verb, describe_decode_error(error, kind)) from error


def _pick_fields(row: Any, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return those of the fields that a row of an answer has; none that is null or empty."""
    values = {name: _pick(row, path) for name, path in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def _pick(row: Any, path: str) -> Any:
    for alternative in path.split("|"):
        value = row
        for name in alternative.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and value != "":
            return value
    return None


def _read_pages(repository: RemoteRepository, verb: str, values: Mapping[str, Any]) -> Iterator[Any]:
    for page in range(1, MAX_PAGES + 1):
        rows = _read(repository, verb, {**values, "page": page})
        if not isinstance(rows, list):
            raise _unreadable(repository, verb, "it is no list")
        yield from rows
        if len(rows) < PAGE_SIZE:
            return
    what = _find_call(repository, verb).what
    raise Missing(f"the list of {what} has more than {MAX_PAGES * PAGE_SIZE} entries", "liza task add --help")


def _read(repository: RemoteRepository, verb: str, values: Mapping[str, Any]) -> Any:
    try:
        return msgspec.json.decode(call_forge(repository, verb, **values))
    except msgspec.DecodeError as error:
        raise _unreadable(repository, verb, f"{error}") from error


def _unreadable(repository: RemoteRepository, verb: str, reason: str) -> Missing:
    forge, what = repository.forge, _find_call(repository, verb).what
    return Missing(f"{forge} printed no {what} that can be read: {reason}", f"{forge} --version")


@cache
def _load_calls() -> dict[str, dict[str, ForgeCall]]:
    data = resources.files("liza.landing").joinpath("forges.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[str, dict[str, ForgeCall]])


def _find_call(repository: RemoteRepository, verb: str) -> ForgeCall:
    return _load_calls()[str(repository.forge)][verb]


def _make_command(repository: RemoteRepository, call: ForgeCall, values: Mapping[str, Any]) -> list[str]:
    given = {"full_name": repository.full_name, "project": project_address(repository), **values}
    if not call.words.startswith("api "):
        return [word.format_map(given) for word in call.words.split(" ")]
    quoted = {name: value if name in _ADDRESSES else quote(f"{value}", safe="") for name, value in given.items()}
    address = call.words.removeprefix("api ").format_map(quoted)
    if call.is_list:
        address += f"{'&' if '?' in address else '?'}per_page={PAGE_SIZE}&page={values['page']}"
    command = ["api", address, "--hostname", repository.host]
    if call.send:
        command += ["--method", call.method, "--header", "Content-Type: application/json", "--input", "-"]
    return command


def kill_running() -> None:
    """Kill the calls of this process that are under way, with their children: they fail."""
    for process in tuple(_running):
        kill_group(process)


_running: set[subprocess.Popen[bytes]] = set()


def _run(forge: Forge, args: Sequence[str], data: bytes, output: int) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "LIZA_"))}
    what = f"{forge} {args[0]} {args[1].partition('?')[0]}"
    try:
        result = run_limited(
            [program_path.find_program(forge), *args],
            FORGE_LIMIT,
            # Not in the repository: what these programs do does not depend on its configuration.
            directory=Path("/"),
            environ=kept | _ENVIRONMENT,
            data=data,
            output=output,
            running=_running,
        )
    except TimeoutError:
        raise ForgeSlow(f"{what} took longer than {FORGE_LIMIT:g} s and was killed", f"{forge} auth status") from None
    crash_points.point("forge", args[1].partition("?")[0])
    if result.returncode != 0:
        raise _explain(forge, what, result.returncode, result.stderr)
    return result.stdout


def _explain(forge: Forge, what: str, code: int, errors: str) -> Missing:
    """Return the error for a failed call, with the command that shows or removes its cause."""
    message = hide_credentials(" ".join(errors.split())) or "without a message"
    text = f"{what} failed ({code}): {message[:500]}"
    if any(word in message.lower() for word in _RATE_WORDS):
        return ForgeSlow(text, f"{forge} api rate_limit" if forge is Forge.GITHUB else f"{forge} auth status")
    if any(word in message for word in _LOGIN_WORDS):
        return LoginMissing(text, f"{forge} auth login")
    return Missing(text, f"{forge} auth status")


def clean_text(text: str) -> str:
    """Return a text without escape sequences, control characters and secrets."""
    return sanitize(_ESCAPES.sub("", text))


def clean_address(url: str | None) -> str:
    """Return a web address of one line without credentials; empty for anything else."""
    text = hide_credentials(clean_text(url or ""))
    is_address = text.startswith(("https://", "http://")) and len(text.split()) == 1
    return text if is_address and len(text) <= _MAX_ADDRESS else ""
