"""The answers of the worker API. Fields may be added in later versions, none is renamed or removed in ``/v1``."""

import msgspec

from liza.briefs.rules.context_rules import ContextMode, SectionType
from liza.model.model import AwareDatetime
from liza.programs.rules.health_rules import HealthStatus, WorkerState


class WorkerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the answers. Every field is present in JSON."""


class LifecycleAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``applied`` is false for a late or repeated event, which changes nothing; ``state`` is the state after it."""

    applied: bool
    state: str
    reason: str | None = None


class PromptAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``queued``: it waits, behind ``position`` other prompts of the run; ``id`` is that of its event on the stream."""

    accepted: bool
    queued: bool
    position: int
    id: str


class AcknowledgeAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """How many of the ids were open until now."""

    acknowledged: int


class ContextSection(WorkerAnswer, frozen=True, kw_only=True):
    """One section of a context, in Markdown."""

    type: SectionType
    content: str


class ContextAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """The sections in the order in which the model reads them. An empty section is left out."""

    run_id: str
    sections: tuple[ContextSection, ...]
    mode: ContextMode


class AuthorizeAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``reason`` tells the agent why not, and what to do instead; ``rule`` names the guard rule that decided."""

    allowed: bool
    reason: str | None = None
    rule: str | None = None


class TelemetryAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """How many events were counted, and how many had been counted before."""

    recorded: int
    repeated: int


class Credential(WorkerAnswer, frozen=True, kw_only=True):
    """A secret for a program. ``type`` is api_key, oauth or token; ``name`` is the variable that takes it."""

    type: str
    name: str
    value: str
    expires_at: AwareDatetime | None = None


class CredentialsEvent(WorkerAnswer, frozen=True, kw_only=True):
    """An event ``credentials`` on the stream: use these from now on, and acknowledge ``id``. ``env`` has variables
    without a secret that change with the account, such as its configuration directory."""

    id: str
    reason: str
    credentials: tuple[Credential, ...] = ()
    env: dict[str, str] = {}


class CredentialReportAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``applied`` is false if the credential was replaced before, or the run has no account."""

    applied: bool


class IdentityAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """Who the worker is. ``token`` is the bearer token of all further requests of this run."""

    run_id: str
    role: str
    repository: str
    agent_name: str
    session_id: str
    token: str
    task_id: str | None = None
    worktree: str | None = None
    credentials: tuple[Credential, ...] = ()
    env: dict[str, str] = {}


class RunHealth(WorkerAnswer, frozen=True, kw_only=True):
    """The health of a run. ``source`` of the state: ``reported`` by its runtime, or ``observed`` by its supervisor."""

    status: HealthStatus
    run_id: str
    uptime_seconds: float
    current_state: WorkerState
    source: str
    last_activity: AwareDatetime | None = None
    context_usage: float | None = None
    error: str | None = None


class ServerHealth(WorkerAnswer, frozen=True, kw_only=True):
    """The health of the server. ``runs``: how many runs have an open stream."""

    status: HealthStatus
    version: str
    uptime_seconds: float
    runs: int
    error: str | None = None
