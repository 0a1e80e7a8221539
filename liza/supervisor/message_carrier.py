"""Deliver messages to the agent's living session, and say reminders and warnings in it."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from liza.briefs import inbox
from liza.briefs.rules import message_rules
from liza.briefs.rules.context_rules import END_AT
from liza.briefs.rules.message_rules import LIZA, DeliveryEvent, Message, MessageChannel, MessageStage, PromptPriority
from liza.model.errors import UsageError
from liza.model.value_classes import Value, replace
from liza.programs.rules import model_silence
from liza.programs.rules.model_silence import ModelSilence
from liza.programs.session import run_directory
from liza.programs.terminal import keyboard, tmux
from liza.programs.terminal.keyboard import NotSent, Sent
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import Memory
from liza.system import file_growth
from liza.system.installation import liza_path
from liza.text.redaction import redact

BRIEF_NOTICE = "Your brief has messages that you have not read. {file} `{liza} ready`."


class TypingDone(Value):
    """Event: typing a message into the session of ``run`` is over."""

    run: str
    message: Message
    outcome: Sent | NotSent
    is_pasted: bool = False
    """Whether the text reached the terminal, submitted or still in its input line."""


class MessageCarrier:
    """Delivers messages to the sessions of one agent.

    Typing runs in a thread, one message at a time; its end is posted as an event. ``notify`` prints the results.
    """

    def __init__(
        self, agent: str, launcher: Launcher, post: Callable[[Any], None], notify: Callable[[str], None]
    ) -> None:
        self.agent = agent
        self.launcher = launcher
        self.crew = launcher.crew
        self.post = post
        self.notify = notify
        self._finished: list[TypingDone] = []
        self._dead_run: str | None = None
        """The run whose program is dead: its end event follows."""
        self._typing: threading.Thread | None = None

    def can_type(self, run: str) -> bool:
        """Whether a message can be typed into the session of ``run`` now: it is alive, and nothing is being typed."""
        return self._typing is None and run != self._dead_run

    def carry_out(self, step: message_rules.DeliveryStep, run: str) -> None:
        """Carry out one step for one message. Raises LizaError, OSError; the loop then tries again."""
        match step:
            case message_rules.TypeMessage(message):
                self._start_typing(message, run)
            case message_rules.PutInBrief(messages, is_announced):
                self._put_in_brief(messages, run, is_announced=is_announced)
            case message_rules.RefreshBrief():
                self.launcher.rewrite_brief(self.agent)
            case message_rules.DropNotices(messages):
                names = {message.id for message in messages}
                inbox.withdraw_messages(self.crew.paths, self.agent, message_rules.LIZA, names)
            case message_rules.TellPerson(messages):
                self._report_unread(messages)
            case _:
                raise AssertionError(step)

    def record_typing(self) -> None:
        """Record the results of finished typing. Raises OSError, LizaError."""
        while self._finished:
            done = self._finished[0]
            self._typing = None
            self._record_outcome(done)
            self._finished.pop(0)

    def acknowledge_from_screen(self, run: str) -> None:
        """Acknowledge typed messages if the terminal shows an acknowledgment. Raises LizaError, OSError."""
        messages = [
            message
            for message in inbox.list_pending(self.crew.paths, self.agent)
            if message.carried and message.run == run
        ]
        pane = tmux.find_pane(self.crew.paths.root, run) if messages else None
        if pane is None:
            return
        screen = pane.capture(history=200)
        patterns = self.crew.board.read().config.delivery.acknowledgment_patterns
        if any(_is_match(pattern, screen) for pattern in patterns):
            ids = tuple(message.id for message in messages)
            now = self.crew.clock.now()
            inbox.acknowledge(self.crew.paths, self.agent, ids, run, "answered", now, MessageChannel.TERMINAL)

    def _start_typing(self, message: Message, run: str) -> None:
        if not self.can_type(run):
            return
        # Counted before typing: a message that crashes the supervisor must not be typed forever.
        self._update(message, attempts=message.attempts + 1, carried=False, run=run)
        counted = replace(message, attempts=message.attempts + 1, run=run)
        self._log((counted,), DeliveryEvent.ATTEMPTED, MessageChannel.TERMINAL)

        def work() -> None:
            outcome = self._send_keys(counted, run)
            done = TypingDone(run, counted, outcome, isinstance(outcome, Sent) or outcome.is_left_unsent)
            self._finished.append(done)
            self.post(done)

        self._typing = threading.Thread(target=work, name=f"type-{run}", daemon=True)
        self._typing.start()

    def _send_keys(self, message: Message, run: str) -> Sent | NotSent:
        try:
            pane = tmux.find_pane(self.crew.paths.root, run)
            if pane is None:
                return NotSent("its terminal is gone", is_retryable=False)
            config = self.crew.board.read().config.delivery
            return keyboard.send(
                pane,
                message_rules.format_typed(message, config, shlex.quote(str(liza_path()))),
                self.launcher.preset,
                self.crew.clock,
                config.readiness_timeout,
                patterns=config.readiness_patterns,
                wanted=lambda: self._claim_message(message, run),
            )
        except Exception as error:  # noqa: BLE001 - the thread must report an end, or nothing is ever typed again
            return NotSent(str(error) or type(error).__name__)

    def _claim_message(self, message: Message, run: str) -> bool:
        """Whether the message is still to be typed: not delivered otherwise, nothing more urgent, no hook for it."""
        return inbox.claim_for_typing(self.crew.paths, self.agent, message.id, run, self.crew.clock.now())

    def _record_outcome(self, done: TypingDone) -> None:
        """Record one finished typing; a message that cannot be typed goes into the brief."""
        message = replace(done.message, typing=done.is_pasted)
        if isinstance(done.outcome, NotSent):
            self._log((message,), DeliveryEvent.FAILED, MessageChannel.TERMINAL, done.outcome.reason)
        if isinstance(done.outcome, NotSent) and not done.outcome.counts_as_try:
            self._update(message, attempts=message.attempts - 1, carried=False)
            self._dead_run = done.run if not done.outcome.is_retryable else None
            return
        if isinstance(done.outcome, NotSent):
            if done.outcome.can_be_typed:
                self._update(message, carried=False)
            else:
                # No later try can succeed.
                self._put_in_brief((message,), done.run, is_announced=True)
            self.notify(f"message {message.id} was not typed: {done.outcome.reason}")
            return
        self._update(message, carried=True)
        if message.sender == message_rules.LIZA or not self.crew.board.read().config.delivery.require_acknowledgment:
            # A start prompt is acknowledged by its sentinel; the config may waive the acknowledgment of a person's
            # message.
            now = self.crew.clock.now()
            ids = (message.id,)
            inbox.acknowledge(self.crew.paths, self.agent, ids, done.run, "typed", now, MessageChannel.TERMINAL)

    def _put_in_brief(self, messages: Sequence[Message], run: str, *, is_announced: bool) -> None:
        """Write the messages into the brief: the instructions file, the assignment, the output of `liza ready`."""
        self.launcher.rewrite_brief(self.agent)
        for message in messages:
            self._update(message, stage=MessageStage.FILED)
        self._log(messages, DeliveryEvent.ESCALATED, MessageChannel.BRIEF)
        verb = "is" if len(messages) == 1 else "are"
        self.notify(f"{_name_messages(messages)} {verb} in the brief now")
        if is_announced and any(message.sender != message_rules.LIZA for message in messages):
            self._announce_brief(run)

    def _announce_brief(self, run: str) -> None:
        """Queue a notice for the terminal that the brief has new messages; one that waits is enough."""
        if any(message.is_notice for message in inbox.list_pending(self.crew.paths, self.agent)):
            return
        location = self.crew.run_dir(run).read_brief_location()
        file = f"Read {location.file} again, or run" if location is not None else "Run"
        text = BRIEF_NOTICE.format(file=file, liza=shlex.quote(str(liza_path())))
        now, source = self.crew.clock.now(), message_rules.NOTICE_SOURCE
        inbox.queue_message(self.crew.paths, self.agent, text, message_rules.LIZA, now, source=source)

    def _report_unread(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._update(message, stage=MessageStage.TOLD)
        self._log(messages, DeliveryEvent.FAILED, MessageChannel.PERSON)
        summary = " ".join(messages[0].text.split())[:80]
        text = f"{self.agent} has not acknowledged {_name_messages(messages)} ({summary})"
        self.crew.append_alert_log([f"message_unread  {text}. Next: liza logs {self.agent}"])
        self.notify(f"! {text}")

    def _log(
        self, messages: Sequence[Message], event: DeliveryEvent, channel: MessageChannel, detail: str = ""
    ) -> None:
        now = self.crew.clock.now()
        inbox.log_events(self.crew.paths, self.agent, messages, event, channel, now, redact(detail))

    def _update(self, message: Message, **changes: Any) -> None:
        inbox.update_message(self.crew.paths, self.agent, replace(message, tried=self.crew.clock.now(), **changes))


def _name_messages(messages: Sequence[Message]) -> str:
    """Return the id of a message, or the number of several and the id of the first."""
    first = messages[0].id
    return f"message {first}" if len(messages) == 1 else f"{len(messages)} messages from {first} on"


def _is_match(pattern: str, screen: str) -> bool:
    try:
        return re.search(pattern, screen, re.IGNORECASE) is not None
    except re.error as error:
        raise UsageError(
            f"config.delivery.acknowledgment_patterns: {pattern!r} is not a valid regular expression: {error}",
            "liza edit",
        ) from error


REMINDER = (
    "You are still {run}. No person reads this terminal. Continue with your task and end it with one of the commands "
    "that your brief names. Run `{liza} ready` to read the brief again."
)
WARNING = (
    "Liza sees {why}. Do something else, or run `{liza} block` and name what you need. If you wait for something, "
    "sleep longer between two checks. A session that continues like this is ended."
)
ASK_HANDOFF = (
    "{usage:.0%} of your context window is used. Commit what you have. Then hand off to a fresh session: "
    '{liza} handoff "what is done" --next "the first thing to do". Above {end:.0%} this session is ended.'
)


class SessionMessages:
    """Says what `decide` found to be said in the sessions of ``agent``. ``notify`` prints a line for the person."""

    def __init__(self, agent: str, launcher: Launcher, memory: Memory, notify: Callable[[str], None]) -> None:
        self.crew, self.agent, self.launcher = launcher.crew, agent, launcher
        self.memory, self.notify = memory, notify

    def remind(self, run: str) -> None:
        """Queue a reminder of the closing commands for an idle session."""
        text = REMINDER.format(run=run, liza=shlex.quote(str(liza_path())))
        inbox.queue_message(self.crew.paths, self.agent, text, LIZA, self.crew.clock.now())
        session = self.memory.session_of(run)
        if session is not None:
            session.idle = session.idle.reminded()
        self.notify(f"{run} is idle at its terminal: reminded it of its closing commands")

    def warn(self, run: str, why: str) -> None:
        """Queue a warning for a session without progress, and write an alert."""
        reason = redact(why)
        text = WARNING.format(why=reason, liza=shlex.quote(str(liza_path())))
        # A session without progress may never end its turn.
        now = self.crew.clock.now()
        inbox.queue_message(self.crew.paths, self.agent, text, LIZA, now, PromptPriority.URGENT)
        session = self.memory.session_of(run)
        if session is not None:
            session.warned = True
        self.crew.append_alert_log([f"no_progress  {run} makes {reason}. Next: liza logs {self.agent}"])
        self.notify(f"! {run}: {reason}; it was warned, and is ended if this continues")

    def ask_handoff(self, run: str, usage: float) -> None:
        """Queue a request to hand off for a session whose context window fills up."""
        text = ASK_HANDOFF.format(usage=usage, end=END_AT, liza=shlex.quote(str(liza_path())))
        now = self.crew.clock.now()
        inbox.queue_message(self.crew.paths, self.agent, text, LIZA, now, PromptPriority.SYSTEM)
        session = self.memory.session_of(run)
        if session is not None:
            session.asked_handoff = True
        self.notify(f"{run}: {usage:.0%} of its context window is used: asked it to hand off")

    def report_question(self, run: str, question: str | None) -> None:
        """Report that the terminal shows a question for a person, or shows none any more."""
        self.crew.run_dir(run).write_question(question)
        if question is None:
            self.notify(f"{run} shows no question any more")
            return
        self.crew.append_alert_log([f"question  {run} shows {question}. Next: liza attach {self.agent}"])
        self.notify(f"! {run} shows {question}: liza attach {self.agent}")

    def report_model_silence(self, run: str, model: ModelSilence | None) -> None:
        """Write for `status` why the session gets no answer, and notify when that changes."""
        directory = self.crew.run_dir(run)
        if model is None:
            directory.write_model_note(None)
            self.notify(f"{run} gets answers again from its model")
            return
        now, timeout = self.crew.clock.now(), self.crew.board.read().config.answer_timeout
        left = max(0.0, model_silence.seconds_to_end(model, timeout))
        directory.write_model_note(
            run_directory.ModelNote(
                kind=model.kind,
                since=now - timedelta(seconds=round(model.seconds)),
                ends=now + timedelta(seconds=round(left)),
                words=model.message,
                retried=model.retried,
            )
        )
        program = self.launcher.preset.name
        self.notify(f"! {run}: {model_silence.describe_status(model, left, program)}")
        file_growth.wake_watchers(self.crew.paths, self.agent)
