"""Readers of the lines that agent programs print: one function for each format, from an object to its events.

An object of a kind that has no meaning for a person, such as the start of a turn, gives no events. `UnknownObject`
means that the format has changed. The formats were read from sessions of the versions that `presets.toml` names in
``verified``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from liza.programs.presets.preset import Preset
from liza.programs.usage.usage_report import usage_of_object
from liza.rules.sessions.session_events import (
    CallsRefused,
    Failed,
    FileEdit,
    ModelText,
    ModelThought,
    Noticed,
    Outcome,
    Printed,
    Prompted,
    SessionBegan,
    SessionEvent,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Unknown,
    count_edit,
)

Object = Mapping[str, Any]
_MAX_TIMESTAMP: Final = 40
"""Characters of a line of a log that tell it from others: its time."""
_COPILOT_END: Final = re.compile(r"\n?<shellId: \d+ completed with exit code \d+>\s*$")
_COPILOT_KINDS: Final = ("session.", "assistant.", "tool.", "user.", "hook.", "permission.", "model.")
_PI_END: Final = "\nCommand exited with code "
"""How two programs tell the exit code of a command: after its output."""


class UnknownObject(Exception):
    """The reader does not know objects of this kind."""


def parse_object(line: str) -> Object | None:
    """Return the object in a line of output; None if it is text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def read_object(events_format: str, event: Object) -> tuple[SessionEvent, ...]:
    """Return the events of an object. Raises UnknownObject, also if a known kind has another form than it had."""
    try:
        return tuple(READERS[events_format](event))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnknownObject from error


def read_line(preset: Preset, line: str) -> tuple[SessionEvent, ...]:
    """Return the events of a line that a program of this row has printed. A line of text is an event, too."""
    parsed = parse_object(line) if preset.events in READERS else None
    if parsed is None:
        return _read_text(preset, line)
    try:
        events = read_object(preset.events, parsed)
    except UnknownObject:
        return (Unknown(line),)
    return tuple(
        TurnEnded(usage_of_object(preset.usage, parsed)) if isinstance(event, TurnEnded) else event for event in events
    )


def _read_text(preset: Preset, line: str) -> tuple[SessionEvent, ...]:
    refusal = re.search(preset.refusal, line) if preset.refusal else None
    if refusal is None:
        return (Printed(line),)
    call, command = f"refused {line[:_MAX_TIMESTAMP]}", refusal["command"]
    return ToolCalled(call, "shell", {"command": command}), ToolReturned(call, refusal["reason"], Outcome.REFUSED)


def find_parent_call(line: str) -> str:
    """Return the id of the call that started the sub-agent whose line this is; empty if it is the main agent's."""
    parsed = parse_object(line) if '"parent_tool_use_id"' in line else None
    parent = parsed.get("parent_tool_use_id") if parsed is not None else None
    return parent if isinstance(parent, str) else ""


def _read_claude(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "system" if event.get("subtype") == "init":
            yield SessionBegan(event["session_id"], event.get("model", ""))
        case "system" if event.get("subtype") == "api_retry":
            yield Noticed(
                f"the model did not answer: {event.get('error') or event.get('error_status')}; it tries again"
            )
        case "system" if event.get("subtype") == "compact_boundary":
            yield Noticed("the conversation was compacted")
        case "system" | "stream_event" | "control_request" | "control_response" | "keep_alive" | "rate_limit_event":
            return
        case "assistant" | "user":
            content = event["message"]["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                yield from _read_claude_part(event["type"], part)
        case "result":
            yield from _read_claude_result(event)
        case _:
            raise UnknownObject


def _read_claude_part(author: str, part: Object) -> Iterator[SessionEvent]:
    match part["type"]:
        case "text":
            yield ModelText(part["text"]) if author == "assistant" else Prompted(part["text"])
        case "thinking":
            yield ModelThought(part["thinking"])
        case "tool_use" | "server_tool_use":
            yield _call(part["id"], part["name"], part["input"])
        case "tool_result":
            text = _text_of(part.get("content"))
            yield ToolReturned(part["tool_use_id"], text, _outcome(failed=bool(part.get("is_error"))))


def _read_claude_result(event: Object) -> Iterator[SessionEvent]:
    denied = tuple(denial["tool_use_id"] for denial in event.get("permission_denials") or ())
    if denied:
        yield CallsRefused(denied)
    if event.get("is_error"):
        yield Failed(str(event.get("result") or event.get("subtype")))
    yield TurnEnded()


def _read_qwen(event: Object) -> Iterator[SessionEvent]:
    """Read the events of claude's format. A command that fails is no error here."""
    for entry in _read_claude(event):
        match entry:
            case ToolReturned(outcome=Outcome.OK):
                yield ToolReturned(entry.call, entry.text, Outcome.ENDED)
            case _:
                yield entry


def _read_codex(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "thread.started":
            yield SessionBegan(event["thread_id"])
        case "turn.started" | "item.started" | "item.updated":
            return
        case "item.completed":
            yield from _read_codex_item(event["item"])
        case "turn.completed":
            yield TurnEnded()
        case "turn.failed":
            yield Failed(_text_of(event["error"]))
        case "error":
            # It says so of each of its own tries, too.
            text = event["message"]
            yield Noticed(text) if text.startswith("Reconnecting") else Failed(text)
        case _:
            raise UnknownObject


def _read_codex_item(item: Object) -> Iterator[SessionEvent]:
    call, status = str(item["id"]), item.get("status")
    outcome = Outcome.REFUSED if status == "declined" else _outcome(failed=status == "failed")
    match item["type"]:
        case "agent_message":
            yield ModelText(item["text"])
        case "reasoning":
            yield ModelThought(item["text"])
        case "command_execution":
            yield ToolCalled(call, "shell", {"command": item["command"]})
            yield ToolReturned(call, item.get("aggregated_output") or "", outcome, item.get("exit_code"))
        case "file_change":
            edits = tuple(FileEdit(change["path"]) for change in item["changes"])
            yield ToolCalled(call, "apply_patch", edits=edits)
            yield ToolReturned(call, "", outcome)
        case "mcp_tool_call":
            yield ToolCalled(call, f"{item['server']}.{item['tool']}", item.get("arguments") or {})
            yield ToolReturned(call, _text_of(item.get("error") or ""), outcome)
        case "web_search":
            yield ToolCalled(call, "web_search", {"query": item["query"]})
        case "todo_list":
            return
        case "error":
            yield Noticed(item["message"])
        case _:
            raise UnknownObject


def _read_gemini(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "init":
            yield SessionBegan(event["session_id"], event.get("model", ""))
        case "message":
            yield ModelText(event["content"]) if event["role"] == "assistant" else Prompted(event["content"])
        case "tool_use":
            arguments = event["parameters"]
            yield _call(event["tool_id"], event["tool_name"], arguments)
        case "tool_result":
            text = event.get("output") or _text_of(event.get("error") or "")
            # A command that fails is a success, too.
            yield ToolReturned(
                event["tool_id"], text, Outcome.ENDED if event["status"] == "success" else Outcome.FAILED
            )
        case "error":
            yield Failed(str(event["message"]))
        case "result":
            if event["status"] != "success":
                yield Failed(_text_of(event.get("error") or event["status"]))
            yield TurnEnded()
        case _:
            raise UnknownObject


def _read_copilot(event: Object) -> Iterator[SessionEvent]:
    data = event.get("data") or {}
    match event["type"]:
        case "assistant.message":
            if data.get("content"):
                yield ModelText(data["content"])
        case "assistant.reasoning":
            yield ModelThought(data["content"])
        case "user.message":
            yield Prompted(data["content"])
        case "tool.execution_start":
            arguments = data["arguments"]
            yield _call(data["toolCallId"], data["toolName"], arguments)
        case "tool.execution_complete":
            text = _COPILOT_END.sub("", _text_of(data.get("result") or data.get("error") or ""))
            code = (data.get("shellExecution") or {}).get("exitCode")
            yield ToolReturned(data["toolCallId"], text, _outcome(failed=not data["success"]), code)
        case "session.error":
            yield Failed(str(data["message"]))
        case "result":
            yield TurnEnded()
        case kind if not kind.startswith(
            ("session.", "assistant.", "tool.", "user.", "hook.", "permission.", "model.")
        ):
            raise UnknownObject


def _read_opencode(event: Object) -> Iterator[SessionEvent]:
    part = event.get("part") or {}
    match event["type"]:
        case "text":
            yield ModelText(part["text"])
        case "reasoning":
            yield ModelThought(part["text"])
        case "tool_use":
            state, call = part["state"], part["callID"]
            yield _call(call, part["tool"], state["input"])
            code = (state.get("metadata") or {}).get("exit")
            outcome = _outcome(failed=state["status"] == "error")
            yield ToolReturned(call, str(state.get("output") or state.get("error") or ""), outcome, code)
        case "step_finish":
            yield TurnEnded()
        case "step_start":
            return
        case "error":
            yield Failed(_text_of(event["error"]))
        case _:
            raise UnknownObject


def _read_pi(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "session":
            yield SessionBegan(event["id"])
        case "message_end":
            yield from _read_pi_message(event["message"])
        case "tool_execution_start":
            yield _call(event["toolCallId"], event["toolName"], event["args"])
        case "tool_execution_end":
            text, _, code = _text_of(event["result"]).partition(_PI_END)
            exit_code = int(code) if code.strip().isdigit() else None
            yield ToolReturned(event["toolCallId"], text, _outcome(failed=event["isError"]), exit_code)
        case kind if not kind.startswith(("agent_", "turn_", "message_", "tool_", "auto_", "compaction_", "queue_")):
            raise UnknownObject


def _read_pi_message(message: Object) -> Iterator[SessionEvent]:
    if message["role"] == "user":
        yield Prompted(_text_of(message["content"]))
    if message["role"] == "assistant":
        for part in message["content"]:
            if part["type"] == "text":
                yield ModelText(part["text"])
            elif part["type"] == "thinking":
                yield ModelThought(part["thinking"])
        if message.get("stopReason") == "error":
            yield Failed(str(message.get("errorMessage") or "the model did not answer"))
        yield TurnEnded()


def _read_vibe(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "effect":
            detail, state = event["detail"], event["state"]
            yield _call(event["id"], detail["toolName"], detail["input"])
            if state["status"] != "running":
                failed = state["status"] != "completed" or (state.get("display") or {}).get("success") is False
                yield ToolReturned(event["id"], str(state.get("outputText") or ""), _outcome(failed=failed))
        case "notice":
            if event["level"] != "info":
                yield Noticed(event["message"])
        case "message":
            text = _text_of(event.get("content") or event.get("text") or "")
            yield ModelText(text) if event.get("role", "assistant") == "assistant" else Prompted(text)
        case _:
            raise UnknownObject


def _read_acp(event: Object) -> Iterator[SessionEvent]:
    """Read a line of the sidecar: `sidecar/output_lines.py` names its types."""
    match event["type"]:
        case "session":
            yield SessionBegan(str(event.get("session_id") or ""))
        case "prompt":
            yield Prompted(str(event.get("text") or ""))
        case "text":
            yield ModelText(event["text"])
        case "thought":
            yield ModelThought(event["text"])
        case "tool_call":
            arguments = {"title": event["title"], **event["input"]}
            yield _call(event["id"], event["tool"], arguments)
        case "tool_result":
            yield ToolReturned(event["id"], event["output"], _outcome(failed=event["status"] != "completed"))
        case "permission":
            if not event["allowed"]:
                yield CallsRefused((event["id"],))
        case "usage":
            yield TurnEnded()
        case "failure":
            yield Failed(event["message"])
        case "notice":
            yield Noticed(str(event.get("message") or event.get("text") or ""))
        case "context" | "turn" | "exit":
            return
        case _:
            raise UnknownObject


def _call(call: str, name: str, arguments: Object) -> ToolCalled:
    return ToolCalled(call, name, arguments, tuple(_edits_of_input(arguments)))


def _outcome(*, failed: bool) -> Outcome:
    return Outcome.FAILED if failed else Outcome.OK


def _edits_of_input(arguments: Object) -> Iterator[FileEdit]:
    """Yield the file that the arguments of an editing tool name, with the lines that it adds and removes."""
    path = next((arguments[name] for name in ("file_path", "filePath", "path") if name in arguments), None)
    if not isinstance(path, str):
        return
    pairs = [(edit.get("old_string", ""), edit.get("new_string", "")) for edit in arguments.get("edits") or ()]
    for old, new in (("old_string", "new_string"), ("oldString", "newString"), ("oldText", "newText"), ("", "content")):
        if isinstance(arguments.get(new), str):
            pairs.append((arguments.get(old, ""), arguments[new]))
    if pairs:
        counts = [count_edit(str(before), str(after)) for before, after in pairs]
        yield FileEdit(path, sum(added for added, _ in counts), sum(removed for _, removed in counts))


def _text_of(value: Any) -> str:
    """Return the text of a result or an error: programs nest it in lists and objects."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text_of, value)))
    if isinstance(value, dict):
        return _text_of(
            next((value[name] for name in ("text", "content", "message", "error", "data") if name in value), "")
        )
    return ""


READERS: Final[Mapping[str, Callable[[Object], Iterator[SessionEvent]]]] = {
    "acp": _read_acp,
    "claude": _read_claude,
    "codex": _read_codex,
    "copilot": _read_copilot,
    "gemini": _read_gemini,
    "opencode": _read_opencode,
    "pi": _read_pi,
    "qwen": _read_qwen,
    "vibe": _read_vibe,
}
"""The reader of each format that a row of `presets.toml` can name as ``events``."""
