"""The requests of the worker API. An unknown field is refused by its name.

``run_id`` is a run of Liza, ``coder-1.7``: one session of one agent, from its start to its end.
"""

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from liza.briefs.rules.context_rules import ContextMode
from liza.briefs.rules.prompt_rules import PromptPriority
from liza.model.model import AwareDatetime
from liza.programs.rules.health_rules import HealthStatus, WorkerState
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.usage.rules.telemetry_rules import Label, TelemetryEvent

MAX_CONTENT = 64_000
"""Maximum length of a prompt, in characters."""
MAX_EVENTS = 1_000
"""Maximum number of telemetry events in a request."""

MAX_TEXT = 64_000
"""Maximum length of a text of a verb, in characters."""
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
Line = Annotated[str, msgspec.Meta(max_length=2_000)]
Lines = Annotated[tuple[Line, ...], msgspec.Meta(max_length=100)]
RunId = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z-]{0,40}-\d{1,9}\.\d{1,9}$", examples=["coder-1.7"])]


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the requests."""


class LifecycleRequest(WorkerRequest, frozen=True, kw_only=True):
    """``session_id`` is the program's own id of its conversation. ``metadata`` of ``stopped``: ``exit_code``."""

    event: LifecycleEvent
    run_id: RunId
    timestamp: AwareDatetime
    session_id: Label | None = None
    metadata: dict[str, Any] = {}


class PromptMetadata(WorkerRequest, frozen=True, kw_only=True):
    """``sender`` is ``from`` in JSON: who wrote the prompt; ``task_id``: the task that it is about."""

    sender: Label | None = msgspec.field(default=None, name="from")
    task_id: Label | None = None


class PromptRequest(WorkerRequest, frozen=True, kw_only=True):
    """A prompt for a run. ``source`` names the kind of sender, for example ``note`` or ``mail``. ``key``: of several
    requests of a sender with the same key, one stores the prompt; a client uses it to try again after a lost answer."""

    run_id: RunId
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CONTENT)]
    priority: PromptPriority = PromptPriority.NORMAL
    source: Label = "note"
    metadata: PromptMetadata = PromptMetadata()
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class AcknowledgeRequest(WorkerRequest, frozen=True, kw_only=True):
    """The ids of events of the run's stream that the runtime has taken over: they are not delivered again."""

    run_id: RunId
    ids: Annotated[tuple[Label, ...], msgspec.Meta(max_length=MAX_EVENTS)]


class ContextRequest(WorkerRequest, frozen=True, kw_only=True):
    """Ask for the sections of a run's context."""

    run_id: RunId
    mode: ContextMode = ContextMode.FULL


class ToolContext(WorkerRequest, frozen=True, kw_only=True):
    """What the runtime believes about its run. A value that contradicts the board is refused."""

    role: Label | None = None
    repository: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    task_id: Label | None = None


class AuthorizeRequest(WorkerRequest, frozen=True, kw_only=True):
    """A tool that is about to run. ``tool`` is the runtime's own name, ``input`` the tool's arguments."""

    run_id: RunId
    tool: Label
    input: dict[str, Any] = {}
    context: ToolContext = ToolContext()


class TelemetryRequest(WorkerRequest, frozen=True, kw_only=True):
    """What a run has used since its last report."""

    run_id: RunId
    events: Annotated[tuple[TelemetryEvent, ...], msgspec.Meta(min_length=1, max_length=MAX_EVENTS)]


class IdentityRequest(WorkerRequest, frozen=True, kw_only=True):
    """Exchange the one-time token of the run's environment (``LIZA_TOKEN``) for the run's identity."""

    token: Annotated[str, msgspec.Meta(max_length=200)]
    session_id: Label | None = None


class HealthReport(WorkerRequest, frozen=True, kw_only=True):
    """A worker's answer to a question for its health on its stream. ``question`` is the id of that question."""

    run_id: RunId
    status: HealthStatus
    current_state: WorkerState
    last_activity: AwareDatetime
    question: Label | None = None
    uptime_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    context_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    error: Annotated[str, msgspec.Meta(max_length=4000)] | None = None


class CredentialState(StrEnum):
    """``expires``: it works until then; ``limited``: its usage limit is reached until then; ``refused``: the model
    refused it, and only a person can make it work again."""

    EXPIRES = "expires"
    LIMITED = "limited"
    REFUSED = "refused"


class CredentialReport(WorkerRequest, frozen=True, kw_only=True):
    """A worker reports the state of a credential that it uses. ``name`` is the one of its credential; empty: the
    account has none, but a directory of its own. ``until`` None: not known. Another one follows on the stream."""

    run_id: RunId
    state: CredentialState
    name: Label = ""
    until: AwareDatetime | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
