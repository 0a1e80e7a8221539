"""How programs are told of `liza mcp`: print or write their configuration, and try what it starts."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from liza.model.errors import Missing, Refused, UsageError
from liza.model.value_classes import Value, decodable
from liza.system import atomic, untrusted_files
from liza.system.installation import liza_path
from liza.system.limited_program import run_limited
from liza.text.formats import did_you_mean

ROWS: Final = Path(__file__).parents[1] / "programs" / "presets" / "mcp_clients.toml"
NAME: Final = "liza"
"""Name of the server in the configuration of every program."""
_LIST_LIMIT: Final = 60.0  # seconds: a program may start all of its servers
_ANSWER_LIMIT: Final = 60.0  # seconds
_PROTOCOL: Final = "2025-06-18"
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class ToolPermission(Value):
    """The list of a ``file`` with what a program may call without a question, and the rule for Liza's tools."""

    file: str
    table: tuple[str, ...]
    rule: str


class ClientRow(Value):
    """Where a program reads its MCP servers. The fields are explained in ``mcp_clients.toml``."""

    file: str
    table: tuple[str, ...]
    entry: dict[str, Any]
    verified: str
    variable: str = ""
    shows: tuple[str, ...] = ()
    permission: ToolPermission | None = None

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.locate(self.file)

    def locate(self, file: str) -> Path:
        """Return where a file of the program is: the environment may name another directory."""
        directory, path = os.environ.get(self.variable) if self.variable else None, Path(file).expanduser()
        return Path(directory) / path.name if directory else path

    @property
    def value(self) -> dict[str, Any]:
        """The entry, with the path of this Liza."""
        command = str(liza_path())
        text = json.dumps(self.entry).replace('"{liza}"', json.dumps(command))
        return dict(json.loads(text))

    @property
    def command(self) -> list[str]:
        """The command that the program starts."""
        value, words = self.value, list[str]()
        for part in (value["command"], value.get("args", [])):
            words += [part] if isinstance(part, str) else part
        return words


def load_row(program: str) -> ClientRow:
    """Return the row of a program. Raises UsageError if it is not known."""
    rows = msgspec.convert(tomllib.loads(ROWS.read_text(encoding="utf-8")), decodable(dict[str, ClientRow]))
    if program not in rows:
        near = did_you_mean(program, rows)
        raise UsageError(f"{program!r} has no row; there are {', '.join(rows)}{near}", "liza mcp install claude")
    return rows[program]


def install(program: str, *, is_written: bool) -> str:
    """Return what belongs into the configuration of a program, or write it. Raises UsageError, Refused, OSError."""
    row = load_row(program)
    edits = list(_list_edits(program, row))
    if not is_written:
        return "\n".join(f"{edit.path}:\n\n{edit.text}" for edit in edits)
    return "\n".join(map(_write, edits))


class _Edit(Value):
    """What belongs into a file as ``text``, and for a file in JSON, where. ``says``: what it changes."""

    path: Path
    text: str
    says: str
    keys: tuple[str, ...]
    value: Any


def _list_edits(program: str, row: ClientRow) -> Iterator[_Edit]:
    says = f"starts {shlex.join(row.command)} now; to try it: liza programs check {program} --mcp"
    keys = (*row.table, NAME)
    text = _format_toml(row) if row.path.suffix == ".toml" else _format_json(keys, row.value)
    yield _Edit(row.path, text, says, keys, row.value)
    if row.permission is not None:
        path, (keys, rule) = row.locate(row.permission.file), (row.permission.table, row.permission.rule)
        says = f"lets {program} call the tools of Liza, and no others, without a question now: {rule}"
        yield _Edit(path, _format_json(keys, [rule]), says, keys, [rule])


def _write(edit: _Edit) -> str:
    """Write what belongs into a file, and return a sentence. Raises Refused, OSError."""
    old = untrusted_files.read_if_exists(edit.path, follow_links=True)
    try:
        text = "" if old is None else old.decode()
    except UnicodeDecodeError:
        raise _write_by_hand(edit, "it is not UTF-8 text") from None
    new = _add_to_toml(edit, text) if edit.path.suffix == ".toml" else _add_to_json(edit, text)
    if new == text:
        return f"{edit.path} has it already"
    path = edit.path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if old is not None else 0o600
    atomic.write(path, new.encode(), mode)
    return f"{edit.path} {edit.says}"


def _format_json(keys: Sequence[str], value: Any) -> str:
    for key in reversed(keys):
        value = {key: value}
    return json.dumps(value, indent=2) + "\n"


def _format_toml(row: ClientRow) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in row.value.items()]
    return "\n".join([f"[{'.'.join((*row.table, NAME))}]", *lines, ""])


def _add_to_toml(edit: _Edit, text: str) -> str:
    """Return the text with the entry at its end. Raises Refused if it has another one, or does not parse."""
    with suppress(tomllib.TOMLDecodeError, AttributeError):
        table: Any = tomllib.loads(text)
        for key in edit.keys[:-1]:
            table = table.get(key, {})
        present = table.get(NAME)
        if present == edit.value:
            return text
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        new = f"{text}{gap}{edit.text}"
        if present is None and tomllib.loads(new):
            return new
    raise _write_by_hand(edit, "it has another entry of that name, or is not valid TOML")


def _add_to_json(edit: _Edit, text: str) -> str:
    """Return the text with the value, or with the new items of a list; its other bytes stay.

    Raises Refused if it is not JSON of this form.
    """
    text, *parents, key = text if text.strip() else "{}\n", *edit.keys
    with suppress(ValueError, AttributeError, TypeError, IndexError, RecursionError):
        document: Any = json.loads(text)
        table = document
        for parent in parents:
            table = table.setdefault(parent, {})
        present: Any = table.get(key)
        more = isinstance(edit.value, list) and present is not None
        if present == edit.value or (more and set(edit.value) <= set(present)):
            return text
        table[key] = [*edit.value, *present] if more else edit.value
        new = _insert(text, edit.keys, edit.value, more=more)
        if json.loads(new) == document:
            return new
    raise _write_by_hand(edit, "it has comments, or is no JSON of this form")


def _insert(text: str, keys: Sequence[str], value: Any, *, more: bool) -> str:
    """Return a JSON text with a value at its keys. ``more``: with further items of the list there."""
    start = _skip_space(text, 0)
    for number, key in enumerate(keys):
        span = _find_member(text, start, key)
        if span is None:
            for inner in reversed(keys[number + 1 :]):
                value = {inner: value}
            return _insert_first(text, start, f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
        start, end = span
    new = json.dumps(value, ensure_ascii=False)
    return _insert_first(text, start, new[1:-1]) if more else text[:start] + new + text[end:]


def _skip_space(text: str, at: int) -> int:
    return cast("re.Match[str]", _SPACE.match(text, at)).end()


def _find_member(text: str, start: int, key: str) -> tuple[int, int] | None:
    """Return where the value of a key of the object at ``start`` begins and ends; None without that key."""
    decode, at = json.JSONDecoder().raw_decode, _skip_space(text, start + 1)
    while text[at] != "}":
        name, at = decode(text, at)
        begin = _skip_space(text, _skip_space(text, at) + 1)
        _, at = decode(text, begin)
        if name == key:
            return begin, at
        at = _skip_space(text, at)
        at = _skip_space(text, at + 1) if text[at] == "," else at
    return None


def _insert_first(text: str, start: int, member: str) -> str:
    """Return the text with another member at the beginning of the object or list at ``start``."""
    first = _skip_space(text, start + 1)
    if text[first] in "}]":
        return f"{text[: start + 1]}{member}{text[first:]}"
    return f"{text[:first]}{member},{text[start + 1 : first] or ' '}{text[first:]}"


def _write_by_hand(edit: _Edit, why: str) -> Refused:
    message = f"{edit.path} is left as it is: {why}. Add this:\n{edit.text}"
    return Refused(message, shlex.join(["cat", str(edit.path)]))


class ClientCheck(Value):
    """One look at the configuration of a program. ``ok`` is None if it was not possible."""

    what: str
    ok: bool | None
    evidence: str


def check(program: str) -> dict[str, Any]:
    """Try the configuration of a program: ask the program for its servers, and the server for its tasks.

    Return ``ok``, ``problems`` and ``checks``. Raises UsageError.
    """
    row = load_row(program)
    checks = [_check_file(program, row), *([_ask_program(row)] if row.shows else []), _ask_server(row)]
    problems = [check.evidence for check in checks if check.ok is False]
    return {"name": program, "ok": not problems, "problems": problems, "checks": checks}


def _check_file(program: str, row: ClientRow) -> ClientCheck:
    text = (untrusted_files.read_if_exists(row.path, follow_links=True) or b"").decode(errors="replace")
    if str(liza_path()) in text and NAME in text:
        return ClientCheck("configuration", True, f"{row.path} names {liza_path()}")
    evidence = f"{row.path} does not name {liza_path()}; `liza mcp install {program}` shows how"
    return ClientCheck("configuration", False, evidence)


def _ask_program(row: ClientRow) -> ClientCheck:
    command = shlex.join(row.shows)
    if shutil.which(row.shows[0]) is None:
        return ClientCheck(command, None, f"{row.shows[0]} is not installed")
    try:
        done = run_limited(row.shows, _LIST_LIMIT)
    except (OSError, TimeoutError) as error:
        return ClientCheck(command, False, f"{command}: {error}")
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if NAME in line]
    evidence = lines[0][:200] if lines else f"{command} does not show {NAME}"
    return ClientCheck(command, bool(lines) and done.returncode == 0, evidence)


def _ask_server(row: ClientRow) -> ClientCheck:
    """Start what the program starts, greet it, and call a tool."""
    start, command = time.monotonic(), shlex.join(row.command)
    hello = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": {"name": "liza-check", "version": "1"}}
    requests: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_tasks", "arguments": {}}},
    ]
    process = subprocess.Popen(row.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        seconds, answer = _talk(process, requests, start)
    except (OSError, ValueError, Missing) as error:
        return ClientCheck(command, False, f"{command} does not answer: {error}")
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_ANSWER_LIMIT)
        process.kill()
    result = answer.get("result", {})
    text = result["content"][0]["text"] if result.get("content") else str(answer.get("error"))
    if result.get("isError") or "error" in answer:
        return ClientCheck(command, False, text)
    return ClientCheck(command, True, f"answers after {seconds:.1f} s; {len(json.loads(text)['tasks'])} tasks")


def _talk(
    process: subprocess.Popen[bytes], requests: Sequence[Mapping[str, Any]], start: float
) -> tuple[float, Mapping[str, Any]]:
    """Send the requests; return the seconds until the first answer, and the last answer. Raises Missing, OSError."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    seconds, answer = 0.0, {}
    for request in requests:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        if "id" not in request:
            continue
        line = process.stdout.readline()
        if not line:
            raise Missing(process.stderr.read().decode(errors="replace").strip()[-300:] or "it ended", "liza mcp")
        seconds, answer = seconds or time.monotonic() - start, json.loads(line)
    return seconds, answer
