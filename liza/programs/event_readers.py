"""Readers of what agent programs write: one function for each format, from an object to its events.

An object of a kind that has no meaning for a person, such as the start of a turn, gives no events. `UnknownObject`
means that the format has changed. The formats were read from sessions of the versions that `presets.toml` names in
``verified``; each is named after its form, because several programs can have the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import ConversationLogFormat, FailurePattern, Preset, UsageFormat
from liza.programs.reported_figures import time_of, usage_of_object, usage_of_request, value_at
from liza.programs.rules.session_events import (
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
    SubagentEnded,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Unknown,
    UsageLimited,
    count_edit,
)
from liza.programs.session.log_file import parse_object

Object = Mapping[str, Any]
_MAX_TIMESTAMP: Final = 40
"""Characters of a line of a log that tell it from others: its time."""


class UnknownObject(Exception):
    """The reader does not know objects of this kind."""


class LineEvents(Value):
    """The events of a line. ``parent`` identifies the sub-agent that it is about, by the call that started it or by its
    own id; empty for the main agent. ``time`` is the one in the line, if it has one."""

    events: tuple[SessionEvent, ...]
    parent: str = ""
    time: datetime | None = None


def read_object(events_format: str, event: Object) -> tuple[SessionEvent, ...]:
    """Return the events of an object. Raises UnknownObject, also if a known kind has another form than it had."""
    try:
        return tuple(READERS[events_format](event))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnknownObject from error


def read_line(preset: Preset, line: str) -> LineEvents:
    """Return the events of a line that a program of this row has printed. A line of text is an event, too."""
    parsed = parse_object(line) if preset.events else None
    if parsed is None:
        return LineEvents(_read_text(preset, line))
    try:
        events = read_object(preset.events, parsed)
    except UnknownObject:
        return LineEvents((Unknown(line),))
    read = tuple(_complete(preset, preset.usage, parsed, event) for event in events)
    if any(isinstance(event, Failed | Noticed) for event in read):
        failure = _find_failure(preset, line)
        read = tuple(_explain(event, failure) for event in read)
    return LineEvents(read, str(parsed.get("parent_tool_use_id") or ""))


def read_record(preset: Preset, line: str) -> LineEvents:
    """Return the events of a line of a conversation log of a program of this row.

    A log has records of many kinds that mean nothing to a person; those that are not known have no events.
    """
    form = preset.journal
    parsed = parse_object(line) if form.events else None
    if parsed is None:
        return LineEvents(())
    try:
        events = read_object(form.events, parsed)
    except UnknownObject:
        events = ()
    agent = value_at(parsed, form.subagent) if form.subagent else None
    return LineEvents(
        tuple(_complete(preset, form, parsed, event) for event in events),
        str(agent or ""),
        time_of(value_at(parsed, form.time)) if form.time else None,
    )


def _complete(preset: Preset, usage: UsageFormat, parsed: Object, event: SessionEvent) -> SessionEvent:
    """Return the event with what the row tells of its program: usage, exit codes and refusals in texts."""
    match event:
        case TurnEnded():
            if not isinstance(usage, ConversationLogFormat):
                return TurnEnded(usage_of_object(usage, parsed))
            key = value_at(parsed, usage.key) if usage.key else ""
            return TurnEnded(usage_of_request(usage, parsed), str(key or ""))
        case ToolReturned():
            refusal = re.search(preset.refusal, event.text) if preset.refusal else None
            if refusal is not None:
                return replace(event, text=refusal["reason"], outcome=Outcome.REFUSED)
            end = re.search(preset.exit_line, event.text) if preset.exit_line else None
            if end is not None:
                text, code = event.text[: end.start()] + event.text[end.end() :], int(end["code"])
                return replace(event, text=text, exit_code=code, outcome=_outcome(failed=code != 0))
            if not preset.reports_failure and event.outcome is Outcome.OK and event.exit_code is None:
                return replace(event, outcome=Outcome.ENDED)
    return event


def _find_failure(preset: Preset, line: str) -> FailurePattern | None:
    """Return the pattern of the row that the line matches; the last one, as for the end of a session."""
    return next((pattern for pattern in reversed(preset.failures) if re.search(pattern.match, line)), None)


def _explain(event: SessionEvent, failure: FailurePattern | None) -> SessionEvent:
    """Return a reported failure as what it is: a usage limit, or one of the program's own tries."""
    if failure is None or not isinstance(event, Failed | Noticed):
        return event
    if SilenceKind(failure.kind) is SilenceKind.QUOTA:
        return UsageLimited(event.text)
    return Noticed(event.text) if failure.retried else event


def _read_text(preset: Preset, line: str) -> tuple[SessionEvent, ...]:
    refusal = re.search(preset.refusal, line) if preset.refusal else None
    if refusal is None:
        return (Printed(line, is_beside=True),)
    if refusal["command"] is None:
        return (Noticed(f"refused: {refusal['reason']}"),)
    call, command = f"refused {line[:_MAX_TIMESTAMP]}", refusal["command"]
    return ToolCalled(call, "shell", {"command": command}), ToolReturned(call, refusal["reason"], Outcome.REFUSED)


def _read_blocks(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "system" if event.get("subtype") == "init":
            yield SessionBegan(event["session_id"], event.get("model", ""))
        case "system" if event.get("subtype") == "api_retry":
            yield Noticed(
                f"the model did not answer: {event.get('error') or event.get('error_status')}; it tries again"
            )
        case "system" if event.get("subtype") == "compact_boundary":
            yield Noticed("the conversation was compacted")
        case "system" if event.get("subtype") == "task_notification":
            yield SubagentEnded(event["tool_use_id"], event["task_id"], (event.get("usage") or {}).get("total_tokens"))
        case "system" | "stream_event" | "control_request" | "control_response" | "keep_alive" | "rate_limit_event":
            return
        case "assistant" | "user":
            content = event["message"]["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                yield from _read_block(event["type"], part)
                yield from _read_subagent(event, part)
            if event.get("timestamp") and event["message"].get("usage"):
                # A record of a conversation log: usage of a request. The output has the sum at its end.
                yield TurnEnded()
        case "result":
            yield from _read_block_result(event)
        case _:
            raise UnknownObject


def _read_block(author: str, part: Object) -> Iterator[SessionEvent]:
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


def _read_subagent(event: Object, part: Object) -> Iterator[SessionEvent]:
    """Yield the end of a sub-agent that a record of a conversation log tells beside the result of its call."""
    result = event.get("toolUseResult")
    if isinstance(result, dict) and "agentId" in result and "tool_use_id" in part:
        yield SubagentEnded(part["tool_use_id"], result["agentId"], result.get("totalTokens"))


def _read_block_result(event: Object) -> Iterator[SessionEvent]:
    denied = tuple(denial["tool_use_id"] for denial in event.get("permission_denials") or ())
    if denied:
        yield CallsRefused(denied)
    if event.get("is_error"):
        yield Failed(str(event.get("result") or event.get("subtype")))
    yield TurnEnded()


def _read_items(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "thread.started":
            yield SessionBegan(event["thread_id"])
        case "turn.started" | "item.started" | "item.updated":
            return
        case "item.completed":
            yield from _read_item(event["item"])
        case "turn.completed":
            yield TurnEnded()
        case "turn.failed":
            yield Failed(_text_of(event["error"]))
        case "error":
            yield Failed(event["message"])
        case _:
            raise UnknownObject


def _read_item(item: Object) -> Iterator[SessionEvent]:
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
            yield ToolReturned(call, _text_of(item.get("error") or item.get("result") or ""), outcome)
        case "collab_tool_call":
            yield ToolCalled(call, item["tool"], {"prompt": item.get("prompt") or ""})
            yield ToolReturned(call, "", outcome)
        case "web_search":
            yield ToolCalled(call, "web_search", {"query": item["query"]})
            yield ToolReturned(call)
        case "todo_list":
            return
        case "error":
            yield Noticed(item["message"])
        case _:
            raise UnknownObject


def _read_messages(event: Object) -> Iterator[SessionEvent]:
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
            yield ToolReturned(event["tool_id"], text, _outcome(failed=event["status"] != "success"))
        case "error":
            yield Failed(str(event["message"]))
        case "result":
            if event["status"] != "success":
                yield Failed(_text_of(event.get("error") or event["status"]))
            yield TurnEnded()
        case _:
            raise UnknownObject


def _read_executions(event: Object) -> Iterator[SessionEvent]:
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
            text = _text_of(data.get("result") or data.get("error") or "")
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


def _read_parts(event: Object) -> Iterator[SessionEvent]:
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


def _read_tool_events(event: Object) -> Iterator[SessionEvent]:
    match event["type"]:
        case "session":
            yield SessionBegan(event["id"])
        case "message_end":
            yield from _read_message(event["message"])
        case "message":
            yield from _read_logged_message(event["message"])
        case "tool_execution_start":
            yield _call(event["toolCallId"], event["toolName"], event["args"])
        case "tool_execution_end":
            yield ToolReturned(event["toolCallId"], _text_of(event["result"]), _outcome(failed=event["isError"]))
        case kind if not kind.startswith(("agent_", "turn_", "message_", "tool_", "auto_", "compaction_", "queue_")):
            raise UnknownObject


def _read_message(message: Object) -> Iterator[SessionEvent]:
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


def _read_logged_message(message: Object) -> Iterator[SessionEvent]:
    """Read a message of a conversation log: calls and results are parts of messages there."""
    if message["role"] == "toolResult":
        yield ToolReturned(message["toolCallId"], _text_of(message["content"]), _outcome(failed=message["isError"]))
        return
    for part in message["content"]:
        if part["type"] == "toolCall":
            yield _call(part["id"], part["name"], part["arguments"])
    yield from _read_message(message)


def _read_rollout(event: Object) -> Iterator[SessionEvent]:
    """Read a conversation log whose records have a payload: calls with their results, items and token counts."""
    payload = event["payload"]
    match event["type"], payload.get("type"):
        case "response_item", "message" if payload["role"] == "assistant":
            yield ModelText(_text_of(payload["content"]))
        case "response_item", "reasoning":
            yield ModelThought(_text_of(payload.get("summary") or ""))
        case "response_item", "function_call" | "custom_tool_call":
            given = payload.get("arguments") or payload.get("input") or ""
            arguments = parse_object(given)
            yield _call(payload["call_id"], payload["name"], {"input": given} if arguments is None else arguments)
        case "response_item", "function_call_output" | "custom_tool_call_output":
            yield ToolReturned(payload["call_id"], _text_of(payload["output"]), Outcome.ENDED)
        case "event_msg", "item_completed":
            yield from _read_rollout_item(payload["item"])
        case "event_msg", "token_count" if payload.get("info"):
            yield TurnEnded()
        case "event_msg", "error":
            yield Failed(payload["message"])
        case "event_msg", "turn_aborted":
            yield Noticed(f"the turn was ended: {payload.get('reason') or 'interrupted'}")
        case "compacted", _:
            yield Noticed("the conversation was compacted")


def _read_rollout_item(item: Object) -> Iterator[SessionEvent]:
    match item["type"]:
        case "UserMessage":
            yield Prompted(_text_of(item["content"]))
        case "CommandExecution":
            outcome = _outcome(failed=item["status"] == "failed")
            yield ToolReturned(item["id"], item.get("aggregated_output") or "", outcome, item.get("exit_code"))
        case "CollabAgentToolCall" if item.get("prompt") and len(item["receiver_thread_ids"]) == 1:
            yield SubagentEnded(item["id"], item["receiver_thread_ids"][0])
        case "FileChange":
            yield ToolReturned(item["id"], "", _outcome(failed=item["status"] == "failed"))


def _read_chats(event: Object) -> Iterator[SessionEvent]:
    """Read a conversation log in which a record of the model has its calls with their results."""
    match event.get("type"):
        case "user":
            text = _text_of(event["content"])
            if text:
                yield Prompted(text)
        case str() if event.get("tokens"):
            calls = event.get("toolCalls") or ()
            # A record with calls repeats the one before it, which has the text.
            for call in calls:
                yield _call(call["id"], call["name"], call["args"])
                text = str(call.get("resultDisplay") or "") if isinstance(call.get("resultDisplay"), str) else ""
                response = _responses(call.get("result") or ())
                failed = call["status"] not in ("success", "completed")
                yield ToolReturned(call["id"], response or text, _outcome(failed=failed))
            if not calls:
                for thought in event.get("thoughts") or ():
                    yield ModelThought(_text_of(thought.get("description") or thought))
                if event["content"]:
                    yield ModelText(_text_of(event["content"]))
                yield TurnEnded()


def _read_contents(event: Object) -> Iterator[SessionEvent]:
    """Read a conversation log of messages with parts, one of which is a text, a call or a response."""
    if event["type"] not in ("user", "assistant", "tool_result"):
        return
    for part in event["message"]["parts"]:
        if "functionCall" in part:
            call = part["functionCall"]
            yield _call(call["id"], call["name"], call["args"])
        elif "functionResponse" in part:
            failed = (event.get("toolCallResult") or {}).get("status") == "error"
            yield ToolReturned(part["functionResponse"]["id"], _responses([part]), _outcome(failed=failed))
        elif part.get("thought"):
            yield ModelThought(_text_of(part))
        elif "text" in part:
            yield ModelText(part["text"]) if event["type"] == "assistant" else Prompted(part["text"])
    if event.get("usageMetadata"):
        yield TurnEnded()


def _responses(parts: Any) -> str:
    """Return the texts of the responses in parts of a message."""
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return "\n".join(str(entry.get("output") or entry.get("error") or "") for entry in responses)


def _read_effects(event: Object) -> Iterator[SessionEvent]:
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
    """Read a line of the sidecar: `api/acp/turns.py` names its types."""
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
    "blocks": _read_blocks,
    "chats": _read_chats,
    "contents": _read_contents,
    "effects": _read_effects,
    "executions": _read_executions,
    "items": _read_items,
    "messages": _read_messages,
    "parts": _read_parts,
    "rollout": _read_rollout,
    "tool-events": _read_tool_events,
}
"""The reader of each format that a row of `presets.toml` can name as ``events``: of its output, or of its log."""
