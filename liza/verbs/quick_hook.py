"""hook, for the usual event during a turn: record it with `json` and `os` alone, in half of the CPU time.

A program waits for ``liza hook`` at each tool call. Everything unusual is left to `hook.py`: the first event of a turn,
another conversation, a session that is over, a message that waits, a file that is not exactly as Liza writes it.
Whatever this module records, `hook.py` would have recorded in the same form; tests/edges/test_quick_hook.py compares
them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from liza.programs.usage.call_digest import digest, summarize_call
from liza.rules.errors import NotRegularFile
from liza.system import ancestors, atomic, untrusted_files

MAX_PAYLOAD = 32 << 20  # bytes of one event
MOST_CALLS = 4 << 20  # size in bytes at which the list of calls is truncated
_TEMPLATES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "programs", "hooks", "templates")  # noqa: PTH118, PTH120
TOOL, BUSY = "tool", "busy"
"""Values of HookMeaning and TurnPhase, whose modules are slow to load."""
MISSING = object()
REFUSED_CODE = 2
_ROLES = ("planner", "coder", "code-reviewer")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class UsualEvent:
    """An event of a run in its own session. ``reads`` are the keys of the payload, as in a template.

    ``event`` is the provider and the name. ``reply`` is what to print on stdout and on stderr, and the exit code.
    """

    def __init__(self, event: str, is_tool: bool, reads: Mapping[str, str], agent_directory: str, run: str) -> None:
        self.event, self.is_tool, self.reads = event, is_tool, reads
        self.reply = ("", "", 0)
        self.inbox, self.directory = f"{agent_directory}/inbox", f"{agent_directory}/{run}"

    def record(self, payload: bytes) -> bool:
        """Record the event and return True; return False if `hook` must handle it.

        Then nothing is recorded; on a full disk a part of a line may be left in the list of calls.
        Raises OSError if the turn could not be written.
        """
        try:
            if self._is_unusual():
                return False
            data = parse_payload(payload)
            if self._next_turn(data) is None:
                return False
            if self.is_tool and self._is_refused(data):
                return True
            lock = untrusted_files.open_regular(f"{self.directory}/.turn.lock", os.O_RDWR | os.O_CREAT)
        except (OSError, ValueError, RecursionError, NotRegularFile):
            return False
        try:
            return self._record_turn(lock, data)
        finally:
            os.close(lock)

    def _record_turn(self, lock: int, data: Mapping[str, Any]) -> bool:
        """Record the event under the lock that `worker/lifecycle.py` takes. Return False if `hook` must handle it:
        another report is being written, or has changed the turn since the guards were asked. Raises OSError."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            turn = self._next_turn(data)
            if turn is None or (self.is_tool and not self._append_call(data)):
                return False
        except (OSError, ValueError, RecursionError, NotRegularFile):
            return False
        atomic.write(f"{self.directory}/turn.json", turn)
        return True

    def _is_unusual(self) -> bool:
        """Return whether the session is ending or has just started, or a message or the brief waits for the agent."""
        if any(os.path.lexists(f"{self.directory}/{name}") for name in ("stopped", "word", "compacted")):
            return True
        try:
            messages = os.listdir(self.inbox)  # noqa: PTH208
        except FileNotFoundError:
            messages = []
        # The first event of a run also writes the file "ready".
        return any(name.endswith(".json") for name in messages) or not os.path.lexists(f"{self.directory}/ready")

    def _next_turn(self, data: Mapping[str, Any]) -> bytes | None:
        """Return the record of the turn after this event; None if the event may not belong to the turn."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        before = parse_turn(untrusted_files.read(f"{self.directory}/turn.json"), now[:10])
        turn = None if before is None else next_turn(before, self.is_tool, self.reads, data, now)
        return None if turn is None else format_turn(turn)

    def _is_refused(self, data: Mapping[str, Any]) -> bool:
        """Ask the guards, and set the reply if they refuse the tool. Raises OSError, ValueError, NotRegularFile."""
        from liza.programs.guards import session_guards

        guards = session_guards.read_guards(self.directory)
        form = guards.data["refusals"][self.event] if self.event in guards.data.get("refusals", ()) else MISSING
        if form is MISSING:
            raise ValueError("no form of a refusal")
        tool, given, cwd = (data.get(self.reads[key]) for key in ("tool", "input", "directory"))
        verdict = session_guards.authorize_tool(
            self.directory,
            guards,
            tool if isinstance(tool, str) else "",
            given,
            os.environ,
            cwd if isinstance(cwd, str) else "",
        )
        if verdict.allowed:
            return False
        reason = verdict.reason or ""
        if form is None:
            self.reply = ("", f"{reason}\n", REFUSED_CODE)
        else:
            self.reply = (json.dumps(fill_text(form, reason), ensure_ascii=False) + "\n", "", 0)
        return True

    def _append_call(self, data: Mapping[str, Any]) -> bool:
        """Append the tool call to the list that the supervisor's meter reads; return False if the list is too long."""
        tool = data.get(self.reads["tool"])
        call = [tool if isinstance(tool, str) else "", data.get(self.reads["input"])]
        line = _encode({"call": digest(call), "words": summarize_call(call)}) + b"\n"
        descriptor = untrusted_files.open_regular(f"{self.directory}/calls.jsonl", _APPEND)
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(descriptor).st_size > MOST_CALLS:
                return False
            file.write(line)
        return True


def find_event(provider: str, event: str, environ: Mapping[str, str]) -> UsualEvent | None:
    """Return the event, if it is usual during a turn and this process is in the session of the run."""
    run, root = environ.get("LIZA_RUN", ""), environ.get("LIZA_ROOT", "")
    agent = parse_run(run)
    if agent is None or not os.path.isabs(root) or os.path.normpath(root) != root or root.startswith("//"):  # noqa: PTH117
        return None
    try:
        fields = read_event(provider, event)
    except (OSError, ValueError):
        return None
    if fields is None or ancestors.find_outermost_run(root) not in (None, run):
        return None
    return UsualEvent(f"{provider} {event}", fields[0] == TOOL, fields[1], f"{root}/.liza/run/{agent}", run)


def next_turn(
    before: Mapping[str, Any], is_tool: bool, reads: Mapping[str, str], data: Mapping[str, Any], now: str
) -> dict[str, Any] | None:
    """Return the turn after a usual event, as `hook_events.next_turn` does; None if it may not belong to the turn."""
    if before["phase"] != BUSY or (reads["nested"] and data.get(reads["nested"])):
        return None
    session = data.get(reads["session"])
    session = session if isinstance(session, str) and session else None
    if before["session"] and session not in (None, before["session"]):
        return None
    return {**before, "time": now, "tools": before["tools"] + is_tool, "session": session or before["session"]}


def fill_text(form: Any, text: str) -> Any:
    """Return a reply's form with the text in the place of ``{text}``, as `hook_templates.fill_form` does."""
    if isinstance(form, dict):
        return {key: fill_text(value, text) for key, value in form.items()}
    if isinstance(form, list):
        return [fill_text(value, text) for value in form]
    return form.replace("{text}", text) if isinstance(form, str) else form


def parse_run(run: str) -> str | None:
    """Return the agent of a run, ``coder-1`` for ``coder-1.7``; None if it is not a run."""
    agent, _, number = run.rpartition(".")
    role, _, agent_number = agent.rpartition("-")
    is_run = role in _ROLES and all(
        digits.isascii() and digits.isdecimal() and len(digits) <= 9 for digits in (number, agent_number)
    )
    return agent if is_run else None


def read_event(provider: str, event: str) -> tuple[str, dict[str, str]] | None:
    """Return the meaning of an event, "tool" or "busy", and the keys of the payload; None for any other event.

    Only the lines of two tables of the template are read, as long as they are texts. Raises OSError, ValueError.
    """
    if not provider.replace("-", "").isalnum():
        return None
    with open(f"{_TEMPLATES}/{provider}.toml", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
        lines = file.read().split("\n")
    row = _read_table(lines, f"[events.{event}]") or _read_table(lines, f'[events."{event}"]')
    meaning = row.get("means", "").strip('"')
    if meaning not in (TOOL, BUSY) or "instead" in row:
        return None
    reads = {"session": "session_id", "tool": "tool_name", "input": "tool_input", "nested": "", "directory": "cwd"}
    for key, value in _read_table(lines, "[reads]").items():
        reads[key] = json.loads(value)
    return meaning, reads


def _read_table(lines: list[str], header: str) -> dict[str, str]:
    """Return the keys of a table with their values as they are written."""
    if header not in lines:
        return {}
    start = lines.index(header) + 1
    table = {}
    for line in lines[start:]:
        if line.startswith("["):
            break
        key, separator, value = line.partition(" = ")
        if separator:
            table[key] = value
    return table


def parse_payload(payload: bytes) -> dict[str, Any]:
    """Return the object of a payload. Raises ValueError, also for a payload that other parsers may read differently."""
    text = payload.decode()
    # Halves of surrogate pairs, infinite numbers and NaN are no errors for this parser.
    if "\\ud" in text or "\\uD" in text:
        raise ValueError("a surrogate")
    data = json.loads(text, parse_float=_parse_float, parse_constant=_refuse_constant)
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


def _parse_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError("an infinite number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def parse_turn(data: bytes, today: str) -> dict[str, Any] | None:
    """Return the record of a turn in the form in which Liza writes it, and of this day; None for any other."""
    record = json.loads(data)
    if not isinstance(record, dict):
        return None
    turn: dict[str, Any] = {"time": None, "phase": None, "tools": 0, "session": None, "pushes": 0, **record}
    is_turn = (
        len(turn) == 5
        and isinstance(turn["time"], str)
        and isinstance(turn["phase"], str)
        and (turn["session"] is None or isinstance(turn["session"], str))
        and all(type(turn[name]) is int and 0 <= turn[name] < 1 << 31 for name in ("tools", "pushes"))
    )
    return turn if is_turn and _is_time(turn["time"], today) and format_turn(turn) == data else None


def _is_time(text: str, today: str) -> bool:
    """Return whether ``text`` is a time of this day. The calendar that judges other days is slow to load."""
    parts = ((text[11:13], 24), (text[14:16], 60), (text[17:19], 60))
    return (
        (len(text), text[:10], text[10::3]) == (20, today, "T::Z")
        and text.isascii()
        and all(digits.isdecimal() and int(digits) < limit for digits, limit in parts)
    )


def format_turn(turn: Mapping[str, Any]) -> bytes:
    """Return the record of a turn; values that are the default are left out."""
    names = ("time", "phase", "tools", "session", "pushes")
    return _encode({name: turn[name] for name in names if turn[name] not in (0, None)}) + b"\n"


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
