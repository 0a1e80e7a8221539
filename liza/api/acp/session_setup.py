"""The start of a session over ACP: handshake, a new or an earlier conversation, mode and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liza.api.rules.turn_results import TurnFailure, classify_error
from liza.model.value_classes import Value
from liza.programs.presets.sidecar_order import SidecarOrder
from liza.system import crash_points

PROTOCOL_VERSION = 1
INITIALIZE = {
    "protocolVersion": PROTOCOL_VERSION,
    # Without these a program reads, writes and runs commands itself: one of them cannot create files through a client.
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "liza", "version": "1"},
}


class CallFailed(Exception):
    """The program answered a request with an error."""

    def __init__(self, method: str, error: Any) -> None:
        super().__init__(f"{method}: {error}")
        self.method, self.error = method, error

    def failure(self) -> TurnFailure:
        """Return what the error means."""
        failure = classify_error(self.error)
        return TurnFailure(failure.kind, f"{self.method}: {failure.message}")


class SetUpCalls(Value):
    """How the start reaches the program.

    ``call`` returns the result of a request, or raises CallFailed; ``notice`` writes a line into the output.
    """

    call: Callable[[str, dict[str, Any]], Any]
    notice: Callable[[str], None]


class OpenedSession(Value):
    """The conversation, and whether an earlier one was loaded."""

    id: str
    is_loaded: bool


def open_session(order: SidecarOrder, calls: SetUpCalls) -> OpenedSession:
    """Begin the conversation and set its mode. Raises CallFailed."""
    announced = calls.call("initialize", INITIALIZE)
    crash_points.point("acp", "initialized")
    session = _load_session(order, calls, announced) or _new_session(order, calls)
    crash_points.point("acp", "session")
    if order.acp.mode:
        calls.call("session/set_mode", {"sessionId": session.id, "modeId": order.acp.mode})
    for name, value in order.acp.options.items():
        values = {"sessionId": session.id, "configId": name, "value": value}
        calls.call("session/set_config_option", values)
    if order.acp.model:
        calls.call("session/set_model", {"sessionId": session.id, "modelId": order.acp.model})
    crash_points.point("acp", "mode")
    return session


def _new_session(order: SidecarOrder, calls: SetUpCalls) -> OpenedSession:
    result = calls.call("session/new", {"cwd": order.cwd, "mcpServers": []})
    name = result.get("sessionId") if isinstance(result, dict) else None
    if not isinstance(name, str) or not name:
        raise CallFailed("session/new", {"message": f"it returned no sessionId: {str(result)[:200]}"})
    return OpenedSession(name, is_loaded=False)


def _load_session(order: SidecarOrder, calls: SetUpCalls, announced: Any) -> OpenedSession | None:
    """Load the earlier conversation, if there is one and the program can. None: a new one has to be begun."""
    capabilities = announced.get("agentCapabilities") if isinstance(announced, dict) else None
    if order.conversation is None or not isinstance(capabilities, dict) or not capabilities.get("loadSession"):
        return None
    try:
        calls.call("session/load", {"sessionId": order.conversation, "cwd": order.cwd, "mcpServers": []})
    except CallFailed as failed:
        calls.notice(f"conversation {order.conversation} could not be loaded: {failed}")
        return None
    return OpenedSession(order.conversation, is_loaded=True)
