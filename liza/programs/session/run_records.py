"""The records in the directory of a run. `run_directory` writes and reads them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from liza.model.session_ends import SilenceKind, StopReason
from liza.model.spending import TokenUsage
from liza.model.value_classes import AwareDatetime, FrozenStruct


class RunRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``run.json``: what the run is for. ``kind`` is work, review or planning; ``task`` is None for planning;
    ``spec`` is the program as it was requested, with its command, and ``model`` the model that was.
    ``has_account``: an account was chosen for it; which
    one is not here, because agents write this file. ``continues`` is the run whose conversation it continues;
    ``new_because`` is why it continues none, empty for the first session of a task. ``session_id_env`` is the variable
    in which the program passes the id of its conversation to its commands; empty if it has none. ``is_confined``: its
    program runs in the box of its slot."""

    agent: str
    run: str
    kind: str
    started: AwareDatetime
    task: str | None = None
    program: str = ""
    spec: str | None = None
    model: str | None = None
    worktree: str = ""
    commit: str | None = None
    has_account: bool = False
    continues: str | None = None
    new_because: str = ""
    session_id_env: str = ""
    is_confined: bool = False


class ReadyEvidence(StrEnum):
    """Evidence that a run has read its brief, besides the events of hooks (``hook SessionStart``)."""

    LIZA_READY = "liza ready"
    """It ran this command."""
    CLOSING_VERB = "verb"
    """It ran another command, which ended the run."""
    IN_PROMPT = "prompt"
    """Its brief was all of its input: it has no tool with which it could show more."""
    BY_HAND = "liza run"
    """A person started it, and sees what it does."""


class Sentinel(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``ready``: the run has read its brief, and the evidence for it: a ReadyEvidence, or ``hook EVENT``."""

    time: AwareDatetime
    evidence: str


class StopNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``stopped``: Liza ends the session, and why. ``reason`` is a sentence for people."""

    time: AwareDatetime
    reason: str
    kind: StopReason = StopReason.HUNG


class PostponedVerb(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``held-up``: the board, its lock or the disk prevented ``verb`` of this run, and no later verb shows that the
    program went on."""

    time: AwareDatetime
    verb: str
    reason: str


class ModelNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``model.json``: why the running session gets no answer from its model; ``words`` is the program's message.

    ``ends`` is when the session is ended unless an answer arrives. ``retried``: until then the program retries by
    itself.
    """

    kind: SilenceKind
    since: AwareDatetime
    ends: AwareDatetime
    words: str = ""
    retried: bool = False


class TurnSource(StrEnum):
    """Who reports the state of a turn."""

    HOOK = "hook"
    """The program's own hooks."""
    API = "api"
    """A runtime that uses the worker API."""
    ACP = "acp"
    """The ACP sidecar."""


class Turn(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``turn.json``: the last report of the program's own hooks, or of its runtime.

    ``phase`` is a TurnPhase; ``tools`` counts the tool calls announced; ``session`` is the program's own id of the
    conversation; ``pushes`` counts how often the program was made to continue instead of ending its turn, since a
    person or Liza last began a turn. ``time`` is that of the event, by the clock of the ``source``. ``exit_code`` is
    the one that a runtime reported with its end. ``turns`` counts the turns that a runtime reported as over.
    """

    time: AwareDatetime
    phase: str
    tools: int = 0
    session: str | None = None
    pushes: int = 0
    source: TurnSource = TurnSource.HOOK
    exit_code: int | None = None
    turns: int = 0

    @property
    def is_reported(self) -> bool:
        """Whether a runtime reports the phases, and hooks only count tools."""
        return self.source is not TurnSource.HOOK


class Gauge(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``gauge.json``: the supervisor's last measurements of a running session. ``models``: the parts of the usage by
    model; ``stuck``: why it makes no progress;
    ``unmeasured``: why its calls and tokens cannot be measured; ``context_usage``: the used part of the context window,
    0 to 1."""

    calls: int = 0
    used: TokenUsage | None = None
    models: dict[str, TokenUsage] = msgspec.field(default_factory=dict)
    stuck: str | None = None
    unmeasured: str | None = None
    context_usage: float | None = None


class BriefLocation(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``brief.json``: the file with the brief's block, relative to the worktree; ``created``: Liza created the file."""

    file: str
    created: bool = False
