"""hook: what a program says through a hook of ours is noted, and answered with what waits for its run.

Said at every edge of a turn and before every tool, so this imports little, and neither git nor the board. An error of
ours never stops a program: it is written down in ``hooks.log`` beside the run, and answered with silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liza.programs.hooks import hook_events, tool_guards
from liza.programs.hooks.hook_events import NO_REPLY, HookReply, ReceivedEvent
from liza.programs.hooks.hook_templates import HookTemplate, load_template
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, Turn
from liza.rules.errors import LizaError
from liza.rules.paths import Paths

MAX_PAYLOAD = 32 << 20  # bytes of what a program may say about one tool
MOST_CALLS, KEPT_CALLS = 4 << 20, 1 << 20
"""Bytes of the list of calls at which it is cut, as a log is, and that are left of it then: some 7,000 calls."""
HOOK_EVIDENCE = "hook {event}"


class Hook:
    """One event of one program. ``answer`` is printed, and then ``delivered`` says that it was."""

    def __init__(self, provider: str, event: str, said: bytes, environ: Mapping[str, str]) -> None:
        self.provider, self.event, self.payload = provider, event, said
        self.run_dir = _run_dir(environ)
        self.messages: tuple[str, ...] = ()

    def reply(self) -> HookReply:
        """What to print, and the exit code. Raises nothing."""
        if self.run_dir is None:
            return NO_REPLY
        try:
            return self._reply(self.run_dir)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            self.log_error(error)
            return NO_REPLY

    def _reply(self, run_dir: RunDir) -> HookReply:
        if not run_dir.exists():
            return NO_REPLY
        found = load_template(self.provider)
        heard = hook_events.parse_event(found, self.event, self._decode_payload())
        if heard is None:
            return NO_REPLY
        refusal = _judge_tool(run_dir, heard) if heard.meaning == "tool" else None
        if refusal is not None:
            return hook_events.refusal_reply(heard, refusal.why)
        now = datetime.now(UTC).replace(microsecond=0)
        turn = hook_events.next_turn(run_dir.read_turn(), heard, now)
        if turn is None:
            return NO_REPLY
        if heard.meaning != "stopped":
            run_dir.mark_ready(now, HOOK_EVIDENCE.format(event=self.event))
        if heard.meaning == "tool":
            _log_call(run_dir, heard)
        self._acknowledge_typed(run_dir, heard, now)
        answer = self._context_reply(run_dir, found, heard, turn)
        if answer is not NO_REPLY and heard.event.push is not None:
            turn = replace(turn, phase="busy", pushes=turn.pushes + 1)
        run_dir.write_turn(turn)
        return answer

    def _decode_payload(self) -> dict[str, object]:
        """What the program said; nothing where that is no object. The event alone says enough to end a run's tools."""
        if not self.payload.strip():
            return {}
        try:
            found = msgspec.json.decode(self.payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.log_error(error)
            return {}
        return found if isinstance(found, dict) else {}

    def _context_reply(self, run_dir: RunDir, found: HookTemplate, heard: ReceivedEvent, turn: Turn) -> HookReply:
        """The brief where a conversation begins, or has lost it; else what waits in the inbox."""
        if heard.meaning in ("started", "compaction"):
            return hook_events.context_reply(
                heard, hook_events.choose_brief_text(found, run_dir.read_block() or "", run_dir.read_prompt() or "")
            )
        if heard.event.context is None and (heard.event.push is None or turn.pushes >= found.pushes):
            return NO_REPLY
        if run_dir.closing_code() is not None or run_dir.read_stop() is not None or run_dir.is_concluded():
            return NO_REPLY
        if not _has_messages(run_dir):
            return NO_REPLY
        from liza.programs.messages import inbox

        waiting = inbox.claim_for_hook(
            run_dir.paths, run_dir.agent, run_dir.run, datetime.now(UTC).replace(microsecond=0)
        )
        self.messages = tuple(one.id for one in waiting)
        text = inbox.format_messages(waiting)
        return (
            hook_events.context_reply(heard, text)
            if heard.event.context is not None
            else hook_events.push_reply(heard, text)
        )

    def _acknowledge_typed(self, run_dir: RunDir, heard: ReceivedEvent, now: datetime) -> None:
        """Acknowledge what was typed into this run's terminal: the turn begins with it, or the terminal has shown that
        the program took it. It is not brought a second time."""
        if not _has_messages(run_dir):
            return
        from liza.programs.messages import inbox

        prompt = "".join(heard.prompt.split())
        typed = inbox.list_typed(run_dir.paths, run_dir.agent, run_dir.run)
        read = tuple(one.id for one in typed if one.carried or "".join(one.text.split()) in prompt)
        by = f"typed, {HOOK_EVIDENCE.format(event=self.event)}"
        inbox.acknowledge(run_dir.paths, run_dir.agent, read, run_dir.run, by, now)

    def acknowledge_delivered(self) -> None:
        """The answer was printed: the messages in it have arrived. Raises nothing."""
        if self.run_dir is None or not self.messages:
            return
        from liza.programs.messages import inbox

        try:
            now = datetime.now(UTC).replace(microsecond=0)
            by = HOOK_EVIDENCE.format(event=self.event)
            inbox.acknowledge(self.run_dir.paths, self.run_dir.agent, self.messages, self.run_dir.run, by, now)
        except Exception as error:  # noqa: BLE001 - it comes once more, and the program goes on
            self.log_error(error)

    def log_error(self, error: Exception) -> None:
        """Write down beside the run what went wrong, for a person. Raises nothing."""
        from liza.programs.session import log_file

        if self.run_dir is None:
            return
        log_file.cap(self.run_dir.path / "hooks.log")
        with suppress(OSError, LizaError), log_file.open_for_append(self.run_dir.path / "hooks.log") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}  {self.provider} {self.event}  {error!r}\n")


def _log_call(run_dir: RunDir, heard: ReceivedEvent) -> None:
    """Keep which tool is called, for whoever measures the session. Raises OSError, Refused."""
    from liza.programs.session import log_file
    from liza.programs.usage.tool_calls import digest, summarize_call

    called = [heard.tool, heard.tool_input]
    line = msgspec.json.encode({"call": digest(called), "words": summarize_call(called)})
    place = run_dir.path / HOOK_CALLS_FILE
    log_file.cap(place, MOST_CALLS, KEPT_CALLS)
    with log_file.open_for_append(place) as log:
        log.write(f"{line.decode()}\n")


def _has_messages(run_dir: RunDir) -> bool:
    """Whether anything waits. Mostly nothing does, and to load what reads it takes a fifth of a hook's time."""
    return any((run_dir.path.parent / "inbox").glob("*.json"))


def _run_dir(environ: Mapping[str, str]) -> RunDir | None:
    run, root = environ.get("LIZA_RUN"), environ.get("LIZA_ROOT")
    if not run or not root:
        return None
    # What stands in the environment may be no run of an agent.
    with suppress(LizaError):
        return RunDir(Paths(Path(root)), run)
    return None


def _judge_tool(run_dir: RunDir, heard: ReceivedEvent) -> tool_guards.ToolRefusal | None:
    stopped = run_dir.read_stop()
    use = tool_guards.ToolUse(run_dir.run, heard.tool, run_dir.closing_code(), stopped.reason if stopped else None)
    return tool_guards.check_tool_use(use)
