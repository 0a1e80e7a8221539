"""How programs are told of `liza mcp`: print or write their configuration, and try what it starts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

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


class ClientRow(Value):
    """Where a program reads its MCP servers. The fields are explained in ``mcp_clients.toml``."""

    file: str
    table: tuple[str, ...]
    entry: dict[str, Any]
    verified: str
    variable: str = ""
    shows: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The configuration file."""
        directory, path = os.environ.get(self.variable) if self.variable else None, Path(self.file).expanduser()
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
    if not is_written:
        return f"{row.path}:\n\n{_format_entry(row)}"
    old = untrusted_files.read_if_exists(row.path, follow_links=True)
    try:
        text = "" if old is None else old.decode()
    except UnicodeDecodeError:
        raise _write_by_hand(row, "it is not UTF-8 text") from None
    new = _add_to_toml(row, text) if row.path.suffix == ".toml" else _add_to_json(row, text)
    if new == text:
        return f"{row.path} has it already"
    path = row.path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if old is not None else 0o600
    atomic.write(path, new.encode(), mode)
    return f"{row.path} starts {shlex.join(row.command)} now; to try it: liza programs check {program} --mcp"


def _format_entry(row: ClientRow) -> str:
    if row.path.suffix == ".toml":
        return _format_toml(row)
    entry: dict[str, Any] = {NAME: row.value}
    for key in reversed(row.table):
        entry = {key: entry}
    return json.dumps(entry, indent=2) + "\n"


def _format_toml(row: ClientRow) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in row.value.items()]
    return "\n".join([f"[{'.'.join((*row.table, NAME))}]", *lines, ""])


def _add_to_toml(row: ClientRow, text: str) -> str:
    """Return the text with the entry at its end. Raises Refused if it has another one, or does not parse."""
    with suppress(tomllib.TOMLDecodeError, AttributeError):
        table: Any = tomllib.loads(text)
        for key in row.table:
            table = table.get(key, {})
        present = table.get(NAME)
        if present == row.value:
            return text
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        new = f"{text}{gap}{_format_toml(row)}"
        if present is None and tomllib.loads(new):
            return new
    raise _write_by_hand(row, "it has another entry of that name, or is not valid TOML")


def _add_to_json(row: ClientRow, text: str) -> str:
    """Return the text with the entry. Raises Refused if it is not JSON: its comments would be lost."""
    try:
        document = json.loads(text) if text.strip() else {}
        table = document
        for key in row.table:
            table = table.setdefault(key, {})
        if table.get(NAME) == row.value:
            return text
        table[NAME] = row.value
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise _write_by_hand(row, "it has comments, or is no JSON of this form") from None
    lines = text.split("\n")
    indent = len(lines[1]) - len(lines[1].lstrip()) if len(lines) > 1 else 2
    return json.dumps(document, indent=indent or 2, ensure_ascii=False) + "\n"


def _write_by_hand(row: ClientRow, why: str) -> Refused:
    return Refused(
        f"{row.path} is left as it is: {why}. Add this:\n{_format_entry(row)}", shlex.join(["cat", str(row.path)])
    )


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
