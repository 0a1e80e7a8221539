"""Drive one session of a program over ACP, from the handshake to its end. Its steps are chosen in `api/rules`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from liza.api.acp import rules
from liza.api.acp.agent_process import (
    METHOD_NOT_FOUND,
    AgentAnswer,
    AgentGone,
    AgentNotice,
    AgentProcess,
    AgentRequest,
    LineTooLong,
    RpcConnection,
)
from liza.api.acp.rules import (
    AcpFacts,
    FailureSign,
    ToolBook,
    ToolPaths,
    TurnFacts,
    TurnFailure,
    classify_error,
)
from liza.api.acp.turns import (
    AGAIN,
    InboxNews,
    OutputLines,
    PromptQueue,
    RunningTurn,
    SurfaceCalls,
    ToolUpdates,
    UsageUpdates,
)
from liza.briefs.rules.message_rules import Message, PromptPriority
from liza.model.errors import LizaError
from liza.model.session_ends import SilenceKind
from liza.model.spending import TokenUsage
from liza.model.value_classes import Value
from liza.programs.presets.command_line import SidecarOrder
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.programs.session.run_directory import RunDir
from liza.system import crash_points
from liza.usage import ledger

SETUP_LIMIT = 120.0  # seconds for each answer before the first prompt; the slowest took 6 s
TEXT_PAUSE = 0.3  # seconds without news after which streamed text is written
CANCEL_WAIT = 4.0  # seconds
"""How long a cancelled turn may take to end before the program's stdin is closed. Its answer has the turn's usage, and
at load it came later than 1 s. The wait ends with the answer."""
REFUSED = "[liza] Refused: {reasons}\nDo not try the same again in another form. Continue with your task."


class StopOrder(Value):
    """Event: the sidecar was asked to end, by SIGTERM."""


class SessionStopped(Exception):
    """Raised when a StopOrder arrives."""


class ProgramGone(Exception):
    """Raised when the program has closed its stdout."""


class SessionDriver:
    """Drives the program of one run. ``events`` receives messages of the program, news of the inbox, and StopOrder."""

    def __init__(
        self,
        order: SidecarOrder,
        run_dir: RunDir,
        process: AgentProcess,
        surfaces: SurfaceCalls,
        events: SimpleQueue[Any],
        lines: OutputLines,
    ) -> None:
        self._order, self._run_dir, self._process = order, run_dir, process
        self._surfaces, self._events, self._lines = surfaces, events, lines
        self._connection = RpcConnection(process.incoming, process.outgoing, events)
        self._queue = PromptQueue(run_dir)
        self._tools = ToolUpdates(run_dir.run, surfaces.worker, lines)
        self._usage = UsageUpdates(order.acp.usage)
        self._signs = [FailureSign(sign.kind, sign.match) for sign in order.acp.failures]
        self._paths = ToolPaths(order.acp.command_paths, order.acp.file_paths)
        self._session = ""
        self._turn: RunningTurn | None = None
        self._turns = 0
        self._refusals: list[str] = []
        self._failure: TurnFailure | None = None
        self._next_messages: tuple[Message, ...] = ()
        self._unread = ""
        self._is_closed = False
        self._unreadable = ""
        self._answers: dict[int, AgentAnswer] = {}

    def run(self, brief: str) -> int | None:
        """Run the session to its end, and end the program, whatever happens. Return the exit status; None after a
        StopOrder."""
        try:
            status = self._run_to_end(brief)
        except BaseException:
            self._shut_down(1)
            raise
        self._shut_down(status)
        return status

    def _run_to_end(self, brief: str) -> int | None:
        try:
            return self._run(brief)
        except SessionStopped:
            return None
        except ProgramGone:
            return self._report_death()
        except CallFailed as failed:
            return self._fail(failed.failure())
        except LineTooLong as error:
            return self._fail(TurnFailure(SilenceKind.BROKEN, str(error)))

    def _run(self, brief: str) -> int:
        self._surfaces.report(LifecycleEvent.STARTED)
        calls = SetUpCalls(self._call, lambda text: self._lines.write("notice", text=text))
        opened = open_session(self._order, calls)
        self._session = opened.id
        self._lines.write("session", session_id=opened.id, loaded=opened.is_loaded, program=self._order.program)
        if opened.is_loaded:
            self._usage.count_from(_usage_of_earlier_sessions(self._run_dir, opened.id))
        self._surfaces.session_id = opened.id
        self._surfaces.report(LifecycleEvent.READY)
        self._queue.watch(self._events)
        self._prompt(brief, "brief", self._queue.take_quoted(brief), brief)
        while True:
            match rules.next_session_step(self._facts()):
                case rules.SendPrompt():
                    self._send_message()
                case rules.TellRefusals():
                    reasons, self._refusals = "\n- ".join(["", *self._refusals]), []
                    explanation = REFUSED.format(reasons=reasons)
                    self._prompt(explanation, "guard", (), explanation)
                case rules.RepeatPrompt():
                    self._prompt("", "repeated")
                case rules.InterruptTurn():
                    self._cancel()
                case rules.EndSession():
                    return 0
                case rules.FailSession(kind, message):
                    return self._fail(TurnFailure(kind, message))
                case rules.AwaitNews(seconds):
                    self._handle(self._next_event(seconds))
            if self._failure is not None and not self._is_closed:
                return self._fail(self._failure)

    def _facts(self) -> AcpFacts:
        turn = self._turn
        now = time.monotonic()
        facts = None
        if turn is not None:
            cancelled = None if turn.cancelled_at is None else now - turn.cancelled_at
            facts = TurnFacts(now - turn.last_update, turn.book.has_open_call(), cancelled, turn.refused)
        return AcpFacts(
            turn=facts,
            waiting=bool(self._next_messages),
            is_urgent=any(message.priority == PromptPriority.URGENT for message in self._next_messages),
            refusals=len(self._refusals),
            is_unread=bool(self._unread),
            is_closed=self._is_closed,
            silence_limit=self._order.silence_limit,
        )

    def _refresh(self) -> None:
        """Read what waits in the inbox, and whether the run is closed. A file that cannot be read is read again."""
        try:
            self._next_messages = self._queue.next_messages()
            self._is_closed = self._run_dir.closing_code() is not None or self._run_dir.read_stop() is not None
        except (LizaError, OSError) as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                self._lines.write("notice", text=self._unreadable)

    def _send_message(self) -> None:
        messages, self._next_messages = self._next_messages, ()
        text = self._queue.take(messages, datetime.now(UTC).replace(microsecond=0))
        names = tuple(message.id for message in messages)
        self._prompt(text, f"message {' '.join(names)}", names)

    def _prompt(self, text: str, source: str, messages: tuple[str, ...] = (), unstored: str = "") -> None:
        """Begin a turn. The prompt also has what an interrupted turn left unread; ``unstored`` is the part of ``text``
        that would be lost with it."""
        if self._unread:
            text = f"{text}\n{AGAIN}\n{self._unread}".lstrip()
        unstored, self._unread = "\n".join(filter(None, (self._unread, unstored))), ""
        self._turns += 1
        self._lines.write("prompt", source=source, text=text)
        self._surfaces.report(LifecycleEvent.BUSY)
        spared = self._process.list_descendants() if self._order.acp.orphans_tools else frozenset[int]()
        params = {"sessionId": self._session, "prompt": [{"type": "text", "text": text}]}
        request = self._connection.request("session/prompt", params)
        now = time.monotonic()
        self._turn = RunningTurn(request, ToolBook(self._paths), self._turns, now, spared, messages, unstored)
        crash_points.point("acp", "prompted")
        self._refresh()

    def _cancel(self) -> None:
        """Cancel the running turn. Its end arrives as the answer to its prompt."""
        assert self._turn is not None
        self._turn.cancelled_at = time.monotonic()
        self._lines.write("notice", text="the turn is interrupted")
        self._connection.notify("session/cancel", {"sessionId": self._session})
        crash_points.point("acp", "cancelled")

    def _call(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, handle events until its answer, and return the result. Raises CallFailed."""
        request = self._connection.request(method, params)
        end = time.monotonic() + SETUP_LIMIT
        while request not in self._answers:
            left = end - time.monotonic()
            if left <= 0:
                raise CallFailed(method, {"message": f"no answer within {SETUP_LIMIT:.0f} s"})
            self._handle(self._next_event(left))
        answer = self._answers.pop(request)
        if answer.error is not None:
            raise CallFailed(method, answer.error)
        return answer.result

    def _next_event(self, seconds: float | None) -> object:
        """Return the next event; None if nothing happens within ``seconds``. Text is written at a pause."""
        if self._lines.has_text:
            with suppress(Empty):
                return self._events.get(timeout=TEXT_PAUSE if seconds is None else min(seconds, TEXT_PAUSE))
            self._lines.flush()
        with suppress(Empty):
            return self._events.get(timeout=seconds)
        return None

    def _handle(self, received: object) -> None:
        match received:
            case AgentNotice(method="session/update", params=params):
                update = params.get("update")
                if isinstance(update, dict) and self._session:
                    self._update(update)
                elif isinstance(update, dict):
                    # An earlier conversation is replayed while it is loaded. Only its price means something.
                    self._usage.read_update(None, update)
            case AgentRequest(method="session/request_permission", params=params):
                answer = self._tools.answer(self._turn, params)
                if self._turn is not None:
                    self._show_read(self._turn)
                if answer.reason is not None:
                    self._refusals.append(answer.reason)
                crash_points.point("acp", "permission")
                self._connection.answer(received, answer.result)
            case AgentRequest(method=method):
                self._connection.refuse(received, METHOD_NOT_FOUND, f"{method} is not offered")
            case AgentAnswer(id=name) if self._turn is not None and name == self._turn.request:
                self._end_turn(self._turn, received)
            case AgentAnswer():
                self._answers[received.id] = received
            case AgentGone():
                raise ProgramGone
            case LineTooLong():
                raise received
            case StopOrder():
                raise SessionStopped
            case InboxNews():
                self._refresh()

    def _update(self, update: dict[str, Any]) -> None:
        """Take over an update of the session. Unknown kinds are kept in the output, and mean nothing else."""
        turn = self._turn
        if turn is not None:
            turn.last_update = time.monotonic()
        if self._usage.read_update(turn, update):
            self._lines.write("context", used=update.get("used"), size=update.get("size"))
        match update.get("sessionUpdate"):
            case "agent_message_chunk" | "agent_thought_chunk" as name:
                content = update.get("content")
                text = content.get("text") if isinstance(content, dict) else None
                if not isinstance(text, str):
                    return
                self._lines.add_text(text, "text" if name == "agent_message_chunk" else "thought")
                if turn is not None and name == "agent_message_chunk":
                    turn.add_text(text)
                    self._show_read(turn)
            case "tool_call" | "tool_call_update" if turn is not None:
                self._tools.update(turn, update)
                self._show_read(turn)

    def _show_read(self, turn: RunningTurn) -> None:
        """Acknowledge the prompt of the turn: the model works on it. Neither the text of a failure nor what comes after
        the turn was cancelled shows that."""
        if turn.is_acknowledged or turn.cancelled_at is not None:
            return
        if rules.find_failure_sign(turn.last_text, self._signs) is not None:
            return
        turn.is_acknowledged = True
        try:
            self._queue.acknowledge(turn.messages, datetime.now(UTC).replace(microsecond=0))
        except (LizaError, OSError) as error:
            # They stay in the inbox: the next session gets them.
            self._lines.write("notice", text=f"not acknowledged: {error}")

    def _end_turn(self, turn: RunningTurn, answer: AgentAnswer) -> None:
        """Take over the end of the running turn."""
        self._turn = None
        if turn.cancelled_at is not None and not turn.is_acknowledged:
            self._queue.give_back(turn.messages)
            self._unread = turn.text
        if answer.error is not None:
            result = rules.judge_error(answer.error, turn.content(), self._signs)
        else:
            fields = answer.result if isinstance(answer.result, dict) else {}
            result = rules.judge_answer(str(fields.get("stopReason") or ""), turn.content(), self._signs)
        if turn.cancelled_at is not None and self._order.acp.orphans_tools:
            self._process.end_tools(turn.spared)
        used = self._usage.end_turn(turn, answer.result)
        if not used.is_empty:
            tokens = {"input_tokens": used.input, "cached_tokens": used.cached, "output_tokens": used.output}
            self._lines.write("usage", **tokens, cost_usd=used.cost)
        self._lines.write("turn", end=result.end, stop_reason=result.stop_reason, tools=len(turn.calls))
        self._failure = result.failure
        crash_points.point("acp", "turn-over")
        self._surfaces.record_turn(turn.number, turn.calls, used, self._usage.context)
        self._surfaces.report(LifecycleEvent.IDLE)
        self._refresh()

    def _fail(self, failure: TurnFailure) -> int:
        """Report why the model gives no answer; the next session loads the conversation."""
        self._lines.write("failure", kind=failure.kind, message=failure.message)
        return 1

    def _report_death(self) -> int:
        """Report that the program ended by itself; that is no failure if its work is closed."""
        status = self._process.wait_for_exit(1.0)
        self._refresh()
        for line in (*self._connection.skipped, *self._process.read_last_errors()) if not self._is_closed else ():
            self._lines.write("notice", text=line)
        self._lines.write("exit", code=status)
        return 0 if self._is_closed else 1

    def _shut_down(self, status: int | None) -> None:
        """End the program: cancel, answer open requests, close its stdin, wait, then signals to its group. An error of
        an earlier step keeps no later one from being done."""
        try:
            self._surfaces.report(LifecycleEvent.STOPPING)
            crash_points.point("acp", "stopping")
            self._end_last_turn()
        finally:
            self._connection.close_input()
            code = self._process.end(self._order.acp.drain)
            self._surfaces.report(LifecycleEvent.STOPPED, {"exit_code": code if status is None else status})
            self._lines.flush()

    def _end_last_turn(self) -> None:
        if self._turn is None or self._process.exit_status() is not None:
            return
        if self._turn.cancelled_at is None:
            self._cancel()
        end = time.monotonic() + CANCEL_WAIT
        with suppress(SessionStopped, ProgramGone, LineTooLong):
            while self._turn is not None and (left := end - time.monotonic()) > 0:
                self._handle(self._next_event(left))


def _usage_of_earlier_sessions(run_dir: RunDir, conversation: str) -> TokenUsage:
    try:
        return ledger.conversation_usage(run_dir.paths, conversation, run_dir.run)
    except (LizaError, OSError):
        # An unreadable ledger has an alarm of its own.
        return TokenUsage()


PROTOCOL_VERSION = 1
INITIALIZE = {
    "protocolVersion": PROTOCOL_VERSION,
    # Without these a program reads, writes and runs commands itself: one of them cannot create files through a client.
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "liza", "version": "1"},
}


class CallFailed(Exception):
    """The program answered a request with an error. ``sets_model``: the request was to use a model."""

    def __init__(self, method: str, error: Any, *, sets_model: bool = False) -> None:
        super().__init__(f"{method}: {error}")
        self.method, self.error, self.sets_model = method, error, sets_model

    def failure(self) -> TurnFailure:
        """Return what the error means."""
        failure = classify_error(self.error)
        kind = SilenceKind.MODEL if self.sets_model else failure.kind
        return TurnFailure(kind, f"{self.method}: {failure.message}")


_MODEL_OPTION = "model"
"""Id of the option of a session that is its model: the same in all programs that were tried."""


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
        _set_value(calls, "session/set_config_option", values, sets_model=name == _MODEL_OPTION)
    if order.acp.model:
        values = {"sessionId": session.id, "modelId": order.acp.model}
        _set_value(calls, "session/set_model", values, sets_model=True)
    crash_points.point("acp", "mode")
    return session


def _set_value(calls: SetUpCalls, method: str, values: dict[str, Any], *, sets_model: bool) -> None:
    try:
        calls.call(method, values)
    except CallFailed as failed:
        raise CallFailed(failed.method, failed.error, sets_model=sets_model) from failed


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
