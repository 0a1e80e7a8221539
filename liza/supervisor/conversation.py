"""Find the conversation that a session continues: the facts for `tasks/rules/conversations`, and the program's id."""

from __future__ import annotations

from collections.abc import Callable

from liza.crew.crew import Crew
from liza.model.derived import CurrentWork
from liza.model.errors import LizaError, NotRegularFile
from liza.model.model import State
from liza.model.statuses import WorkKind
from liza.programs.presets import acp_session
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.tasks.rules import conversations
from liza.tasks.rules.conversations import ContinueConversation, EarlierSession, NewConversation
from liza.usage.run_account import read_run_account


class ConversationFinder:
    """Chooses the conversation of one agent's sessions with one program; ``notify`` prints notices."""

    def __init__(self, crew: Crew, preset: Preset, notify: Callable[[str], None], *, terminal: bool) -> None:
        self.crew = crew
        self.preset = preset
        self.notify = notify
        self.acp = acp_session.find_settings(preset, terminal=terminal)

    def choose(self, state: State, work: CurrentWork, worktree: str) -> ContinueConversation | NewConversation:
        """Return which session's conversation ``work.run`` continues, or why it begins a new one.

        Reviews and planning always begin a new one.
        """
        task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
        if task is None:
            return NewConversation()
        runs = conversations.earlier_runs(task, work.run)[: conversations.MAX_RESUMED_FAILURES]
        next_session = EarlierSession(run=work.run, program=self.preset.name, worktree=worktree)
        earlier = [session for run in runs if (session := self._describe(run)) is not None]
        chosen = conversations.choose_conversation(task, next_session, earlier)
        if isinstance(chosen, NewConversation):
            return chosen
        obstacle = self._obstacle(self.crew.run_dir(chosen.run))
        return NewConversation(f"{chosen.run}: {obstacle}") if obstacle else chosen

    def is_account_known(self, previous: RunDir) -> bool:
        """Return whether the account of a session is known: that may have the conversation."""
        try:
            read_run_account(previous)
        except (LizaError, OSError) as error:
            self.notify(f"! {error}; its conversation is not continued")
            return False
        return True

    def _describe(self, run: str) -> EarlierSession | None:
        directory = self.crew.run_dir(run)
        try:
            record = directory.read_record()
            # Over ACP a refused conversation ends no session.
            has_worked = directory.has_sidecar() or any(directory.read_activity())
        except (LizaError, OSError, NotRegularFile) as error:
            # An agent may have replaced them.
            self.notify(f"! {error}; the conversation of {run} is not continued")
            return None
        if record is None:
            return None
        return EarlierSession(
            run=run,
            program=record.program,
            worktree=record.worktree,
            is_resumed=record.continues is not None,
            has_worked=has_worked,
        )

    def _obstacle(self, previous: RunDir) -> str:
        """Return why the program cannot continue the conversation of a session; empty if it can try.

        Over ACP a conversation that cannot be loaded costs nothing: the sidecar begins a new one. A command line fails.
        """
        if self.acp is not None:
            return "its conversation is too young to be loaded" if self._age(previous) < self.acp.load_min_age else ""
        if not self.preset.resume.id:
            return f"{self.preset.name} cannot resume a conversation"
        # If its model never answered: some programs do not store such a conversation, and fail on its id.
        return "" if any(previous.read_activity()) else "its model never answered"

    def _age(self, previous: RunDir) -> float:
        """Return the seconds since a session was started; 0 if that is not known."""
        record = previous.read_record()
        return 0.0 if record is None else (self.crew.clock.now() - record.started).total_seconds()
