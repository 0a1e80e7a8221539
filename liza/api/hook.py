"""hook: record an event from an agent program's hook, and reply with the messages that wait for its run.

Programs call it at the start and end of every turn and before every tool, so it uses neither git nor the board. A tool
that cannot be judged is refused. Any other error never stops a program: it is logged in ``hooks.log`` in the run
directory, and the reply is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.api.lifecycle import report_hook_event
from liza.briefs import inbox, prompt_stream
from liza.briefs.rules.message_rules import AT_TURN_END, DURING_TURN, PRIORITIES, MessageChannel, PromptPriority
from liza.guards.rules.tool_calls import RAW_INPUT
from liza.guards.session_guards import AuthorizeRequest, judge_request
from liza.model.errors import LizaError, LockTimeout, UsageError
from liza.model.paths import Paths
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_events import NO_REPLY, HookMeaning, HookReply, HookTemplate, ReceivedEvent, load_template
from liza.programs.session import log_file
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, Turn
from liza.text.formats import format_time
from liza.usage.rules.loop_detection import digest, summarize_call

MOST_CALLS = 4 << 20  # size in bytes at which the list of calls is truncated
SIZE_AFTER_CUT = 1 << 20  # size in bytes of the list of calls after it was truncated: some 7,000 calls
HOOK_EVIDENCE = "hook {event}"
EXIT_UNKNOWN = 1
"""Exit code if it is not known what an event means. The installed command then refuses a tool, and ignores the rest."""


class Hook:
    """One event of one program. Print ``reply``, then call ``acknowledge_delivered``."""

    def __init__(self, provider: str, event: str, payload: bytes, environ: Mapping[str, str]) -> None:
        self.provider, self.event, self.payload = provider, event, payload
        self.environ = environ
        self.run_dir = _run_dir(environ)
        self.messages: tuple[str, ...] = ()
        self.has_brief = False
        """Whether the reply has the brief after a compaction."""
        self._is_decided = False
        """Whether the event is no tool, or the tool is judged: an error afterwards does not stop the program."""

    def reply(self) -> HookReply:
        """Return the text to print and the exit code. Raises nothing."""
        if self.run_dir is None:
            return NO_REPLY
        try:
            return self._reply(self.run_dir)
        except Exception as error:  # noqa: BLE001 - an error here must not stop the program
            self.log_error(error)
            self._drop_reply()
            unknown = HookReply(err=f"[liza] the hook {self.event} failed: {error}\n", code=EXIT_UNKNOWN)
            return NO_REPLY if self._is_decided else unknown

    def _drop_reply(self) -> None:
        """Forget what the reply would have delivered: it is not printed."""
        self.messages, self.has_brief = (), False

    def _reply(self, run_dir: RunDir) -> HookReply:
        template = load_template(self.provider)
        event = hook_events.parse_event(template, self.event, self._decode_payload())
        if event is None:
            raise UsageError(f"the hooks of {self.provider} have no event {self.event!r}", "liza programs list")
        if event.meaning is HookMeaning.TOOL:
            reason = self._find_refusal(run_dir, event)
            if reason is not None:
                return hook_events.refusal_reply(event, reason)
        self._is_decided = True
        if not run_dir.exists():
            return NO_REPLY
        if run_dir.has_sidecar():
            # A hook file that an earlier session left in the worktree: the sidecar reports turns, calls and messages.
            return NO_REPLY
        now = datetime.now(UTC).replace(microsecond=0)
        turn = hook_events.next_turn(run_dir.read_turn(), event, now)
        if turn is None:
            return NO_REPLY
        if event.meaning is HookMeaning.TOOL:
            _log_call(run_dir, event)
        reply = self._message_reply(run_dir, template, event, turn, now)
        is_pushed = reply is not NO_REPLY and event.event.push is not None
        if self._is_recorded(run_dir, event, now, is_pushed=is_pushed) or not is_pushed:
            return reply
        # A push that is not counted could be repeated without an end.
        self._drop_reply()
        return NO_REPLY

    def _find_refusal(self, run_dir: RunDir, event: ReceivedEvent) -> str | None:
        """Return why a tool must not run; None if it may."""
        if not run_dir.exists():
            return f"[liza] not run: the records of {run_dir.run} are gone, so this session is over. End here"
        answer = judge_request(run_dir, _tool_request(run_dir, event), self.environ, event.directory)
        return None if answer.allowed else answer.reason or ""

    def _is_recorded(self, run_dir: RunDir, event: ReceivedEvent, now: datetime, *, is_pushed: bool) -> bool:
        """Record the event; return whether that was possible. A process that keeps the lock is logged."""
        try:
            # It reads the turn again: the runtime, or another hook, may have reported meanwhile.
            report_hook_event(run_dir, event, self.event, now, is_pushed=is_pushed)
        except LockTimeout as error:
            self.log_error(error)
            return False
        return True

    def _message_reply(
        self, run_dir: RunDir, template: HookTemplate, event: ReceivedEvent, turn: Turn, now: datetime
    ) -> HookReply:
        """Acknowledge and deliver messages. An error of the inbox is logged, and the event is recorded without it."""
        try:
            self._acknowledge_prompted(run_dir, event, now)
            return self._context_reply(run_dir, template, event, turn)
        except Exception as error:  # noqa: BLE001 - a damaged inbox must not hide the state of the turn
            self.log_error(error)
            self._drop_reply()
            return NO_REPLY

    def _decode_payload(self) -> dict[str, object]:
        """Decode the payload; empty if it is not an object. The event name alone is enough to refuse a tool."""
        if not self.payload.strip():
            return {}
        try:
            payload = msgspec.json.decode(self.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.log_error(error)
            return {}
        return payload if isinstance(payload, dict) else {}

    def _context_reply(self, run_dir: RunDir, template: HookTemplate, event: ReceivedEvent, turn: Turn) -> HookReply:
        """Reply with the brief if a conversation starts or was compacted, else with the messages of the inbox.

        Some programs report a compaction by an event without a context. The next event with one then has the brief.
        """
        if event.meaning is HookMeaning.COMPACTION and event.event.context is None:
            run_dir.mark_compacted()
            return NO_REPLY
        if event.meaning in (HookMeaning.STARTED, HookMeaning.COMPACTION):
            self.has_brief = event.event.context is not None
            return hook_events.context_reply(event, _brief_text(run_dir, template))
        if event.event.context is None and (event.event.push is None or turn.pushes >= template.pushes):
            return NO_REPLY
        if run_dir.closing_code() is not None or run_dir.read_stop() is not None or run_dir.is_concluded():
            return NO_REPLY
        if event.event.context is not None and run_dir.is_compacted():
            self.has_brief = True
            # The brief quotes messages shortened: the inbox follows at the next event.
            return hook_events.context_reply(event, _brief_text(run_dir, template))
        if not _has_messages(run_dir):
            return NO_REPLY

        waiting = inbox.claim_for_hook(
            run_dir.paths,
            run_dir.agent,
            run_dir.run,
            datetime.now(UTC).replace(microsecond=0),
            priorities=_priorities_for(event),
            taken=_delivered_to_runtime(run_dir) if turn.is_reported else (),
        )
        # A message whose push is confirmed by the next prompt stays pending until then.
        is_evidence = event.event.context is not None or not event.event.is_confirmed
        self.messages = tuple(message.id for message in waiting) if is_evidence else ()
        text = inbox.format_messages(waiting)
        return (
            hook_events.context_reply(event, text)
            if event.event.context is not None
            else hook_events.push_reply(event, text)
        )

    def _acknowledge_prompted(self, run_dir: RunDir, event: ReceivedEvent, now: datetime) -> None:
        """Acknowledge the messages that the turn's prompt shows to be read, so that they are not delivered twice.

        A tool call has no prompt, and programs make many: it does not read the inbox.
        """
        if event.meaning is HookMeaning.TOOL or not _has_messages(run_dir):
            return

        read = inbox.list_prompted(run_dir.paths, run_dir.agent, run_dir.run, event.prompt)
        by = HOOK_EVIDENCE.format(event=self.event)
        for words, channel, is_typed in (
            (f"typed, {by}", MessageChannel.TERMINAL, True),
            (by, MessageChannel.HOOK, False),
        ):
            ids = tuple(message.id for message in read if message.typing is is_typed)
            inbox.acknowledge(run_dir.paths, run_dir.agent, ids, run_dir.run, words, now, channel)

    def acknowledge_delivered(self) -> None:
        """Acknowledge what the reply contains, the brief and messages, after it was printed. Raises nothing."""
        if self.run_dir is not None and self.has_brief:
            try:
                self.run_dir.unmark_compacted()
            except OSError as error:
                self.log_error(error)
        if self.run_dir is None or not self.messages:
            return

        try:
            now = datetime.now(UTC).replace(microsecond=0)
            by, paths, agent = HOOK_EVIDENCE.format(event=self.event), self.run_dir.paths, self.run_dir.agent
            inbox.acknowledge(paths, agent, self.messages, self.run_dir.run, by, now, MessageChannel.HOOK)
        except Exception as error:  # noqa: BLE001 - the messages are delivered again; the program must not stop
            self.log_error(error)

    def log_error(self, error: Exception) -> None:
        """Log an error in the run directory, for a person. Raises nothing."""
        if self.run_dir is None:
            return
        with suppress(OSError, LizaError):
            log_file.cap(self.run_dir.path / "hooks.log")
            with log_file.open_for_append(self.run_dir.path / "hooks.log") as log:
                log.write(f"{format_time(datetime.now(UTC))}  {self.provider} {self.event}  {error!r}\n")


def _log_call(run_dir: RunDir, event: ReceivedEvent) -> None:
    """Append a tool call to the list that the supervisor's meter reads. Raises OSError, Refused."""
    call = [event.tool, event.tool_input]
    line = msgspec.json.encode({"call": digest(call), "words": summarize_call(call)})
    path = run_dir.path / HOOK_CALLS_FILE
    log_file.cap(path, MOST_CALLS, SIZE_AFTER_CUT)
    with log_file.open_for_append(path) as log:
        log.write(f"{line.decode()}\n")


def _delivered_to_runtime(run_dir: RunDir) -> tuple[str, ...]:
    """Return the messages that the stream of the run has delivered. Raises OSError, NotRegularFile."""
    return prompt_stream.read_delivered(run_dir)


def _priorities_for(event: ReceivedEvent) -> frozenset[PromptPriority]:
    """Return the priorities of the messages that this event delivers."""
    if event.meaning is HookMeaning.TOOL:
        return DURING_TURN
    return AT_TURN_END if event.event.context is None else frozenset(PRIORITIES)


def _brief_text(run_dir: RunDir, template: HookTemplate) -> str:
    return hook_events.choose_brief_text(template, run_dir.read_block() or "", run_dir.read_prompt() or "")


def _has_messages(run_dir: RunDir) -> bool:
    """Whether messages wait. Checked first: usually there are none, and importing the inbox takes a fifth of a hook's
    time."""
    return any((run_dir.path.parent / "inbox").glob("*.json"))


def _run_dir(environ: Mapping[str, str]) -> RunDir | None:
    run, root = environ.get("LIZA_RUN"), environ.get("LIZA_ROOT")
    if not run or not root:
        return None
    # The value of LIZA_RUN may not be a run of an agent.
    with suppress(LizaError):
        return RunDir(Paths(Path(root)), run)
    return None


def _tool_request(run_dir: RunDir, event: ReceivedEvent) -> AuthorizeRequest:
    given = event.tool_input if isinstance(event.tool_input, dict) else {RAW_INPUT: event.tool_input}
    return AuthorizeRequest(run_id=run_dir.run, tool=event.tool, input=given)
