"""Tool calls and permission requests of a turn: print them, and answer the requests."""

from __future__ import annotations

import time
from typing import Any

from liza.api.acp.output_lines import OutputLines, shorten_output
from liza.api.acp.surfaces import WorkerSurfaces
from liza.api.acp.turn_state import RunningTurn
from liza.api.api_answers import AuthorizeAnswer
from liza.api.api_requests import AuthorizeRequest
from liza.api.rules.tool_requests import CallStatus, ToolRequest, choose_option, compose_outcome
from liza.model.value_classes import Value
from liza.usage.rules.telemetry_rules import ReportedCall

CANCELLED = compose_outcome(None)
NO_ANSWER = "Liza could not decide whether this may run ({error}), so it is refused. Call `liza block` if you need it."


class PermissionAnswer(Value):
    """The result to send to the program, and the reason that the model has to be told, or None."""

    result: dict[str, Any]
    reason: str | None = None


class ToolUpdates:
    """Handles the tool calls of one run."""

    def __init__(self, run: str, surfaces: WorkerSurfaces, lines: OutputLines) -> None:
        self._run, self._surfaces, self._lines = run, surfaces, lines

    def update(self, turn: RunningTurn, call: dict[str, Any]) -> None:
        """Take over an update of a call: print the call once it is known, and its result when it is over."""
        name = turn.book.add(call)
        status = turn.book.status(name)
        is_over = status in tuple(CallStatus)
        if turn.book.describe(name).input or is_over:
            self._begin(turn, name)
        if is_over:
            self._end(turn, name, status)
        turn.add_tool()

    def answer(self, turn: RunningTurn | None, params: dict[str, Any]) -> PermissionAnswer:
        """Decide a permission request. Without a turn, or in a cancelled one, the protocol wants ``cancelled``."""
        if turn is None or turn.cancelled_at is not None:
            return PermissionAnswer(CANCELLED)
        call = params.get("toolCall")
        name = turn.book.add(call if isinstance(call, dict) else {})
        self._begin(turn, name)
        turn.add_tool()
        tool = turn.book.describe(name)
        answer = self._authorize(tool)
        options = params.get("options")
        option = choose_option(options if isinstance(options, list) else [], allowed=answer.allowed)
        self._lines.write(
            "permission", id=name, tool=tool.tool, allowed=answer.allowed, rule=answer.rule, reason=answer.reason
        )
        if answer.allowed and option is not None:
            return PermissionAnswer(compose_outcome(option))
        self._end(turn, name, CallStatus.FAILED)
        turn.refused += 1
        reason = answer.reason if not answer.allowed else "its program offers no way to allow it once"
        return PermissionAnswer(compose_outcome(option), f"{_describe(tool)}: {reason or 'it is not allowed'}")

    def _authorize(self, tool: ToolRequest) -> AuthorizeAnswer:
        """Ask the guards. An error is a refusal."""
        try:
            return self._surfaces.authorize(AuthorizeRequest(run_id=self._run, tool=tool.tool, input=tool.input))
        except Exception as error:  # noqa: BLE001 - fail closed, whatever the error is
            return AuthorizeAnswer(allowed=False, reason=NO_ANSWER.format(error=error or type(error).__name__))

    def _begin(self, turn: RunningTurn, name: str) -> None:
        if name in turn.begun_calls:
            return
        turn.begun_calls[name] = time.monotonic()
        tool = turn.book.describe(name)
        self._lines.write("tool_call", id=name, tool=tool.tool, title=tool.title, input=tool.input)

    def _end(self, turn: RunningTurn, name: str, status: str) -> None:
        tool, output = turn.book.describe(name), turn.book.output(name)
        began = turn.begun_calls.get(name)
        turn.book.close(name)
        if began is None:
            return
        milliseconds = int((time.monotonic() - began) * 1000)
        is_success = status == CallStatus.COMPLETED
        turn.calls.append(ReportedCall(name=tool.tool, success=is_success, duration_ms=milliseconds))
        self._lines.write("tool_result", id=name, status=status, output=shorten_output(output), ms=milliseconds)


def _describe(tool: ToolRequest) -> str:
    """Return the call in a few words: the command, the file, or its title."""
    words = str(tool.input.get("command") or tool.input.get("path") or tool.title or tool.tool)
    return f"`{words[:500]}`"
