"""What a supervisor says in a session, and about it: reminders and warnings to the agent, questions and silence to the
person.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta

from liza.briefs import inbox
from liza.briefs.rules.context_rules import END_AT
from liza.briefs.rules.message_rules import LIZA
from liza.briefs.rules.prompt_rules import PromptPriority
from liza.programs.rules import model_silence
from liza.programs.rules.model_silence import ModelSilence
from liza.programs.session import run_directory
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import Memory
from liza.system import wake_up
from liza.system.liza_path import liza_path
from liza.text.redaction import redact

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
        wake_up.wake_watchers(self.crew.paths, self.agent)
