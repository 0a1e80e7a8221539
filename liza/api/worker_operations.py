"""The operations of the surfaces: each calls the function of its surface."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Final

from liza.api.agent_list import AgentsAnswer, ListedAgent, list_agents
from liza.api.api_answers import (
    AcknowledgeAnswer,
    AuthorizeAnswer,
    ContextAnswer,
    ContextSection,
    Credential,
    CredentialReportAnswer,
    IdentityAnswer,
    LifecycleAnswer,
    PromptAnswer,
    RunHealth,
    ServerHealth,
    TelemetryAnswer,
    WorkerAnswer,
)
from liza.api.api_requests import (
    AcknowledgeRequest,
    AuthorizeRequest,
    ContextRequest,
    CredentialReport,
    CredentialState,
    HealthReport,
    IdentityRequest,
    LifecycleRequest,
    PromptMetadata,
    PromptRequest,
    TelemetryRequest,
    ToolContext,
)
from liza.api.callers import Access
from liza.api.calls import Call, Operation, WouldWait
from liza.api.context import compose_context
from liza.api.credentials import acknowledge_credentials, current_credentials, report_credential
from liza.api.health import report_health, run_health, server_health
from liza.api.identity import identify
from liza.api.lifecycle import report_lifecycle
from liza.api.prompts import acknowledge_prompts, submit_prompt
from liza.api.telemetry import record_telemetry
from liza.briefs.rules.context_rules import ContextMode, SectionType
from liza.briefs.rules.prompt_rules import PromptPriority
from liza.guards.authorize import authorize
from liza.model.agent_states import AgentState
from liza.programs.rules.health_rules import HealthStatus, WorkerState
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage


class ReportAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``recorded``: the report of the health is stored."""

    recorded: bool


MAX_INLINE_TOOL: Final = 1 << 10
"""Size of a body whose judgment takes 1 ms, and 26 ms for the slowest of twelve commands made up to take long."""
MAX_INLINE_TELEMETRY: Final = 32 << 10
"""Size of a body with some 150 turns: 3 ms."""
RUN: Final = "coder-1.7"
PROMPT: Final = "20260301T150100-000-s"
_TIME: Final = datetime(2026, 3, 1, 15, 1, tzinfo=UTC)


def _lifecycle(call: Call) -> LifecycleAnswer:
    return report_lifecycle(call.run_dir, call.request, call.crew.clock.now())


def _prompt(call: Call) -> PromptAnswer:
    return submit_prompt(call.crew, call.caller.person or call.run, call.request)


def _acknowledge(call: Call) -> AcknowledgeAnswer:
    prompts = acknowledge_prompts(call.run_dir, call.request, call.crew.clock.now())
    credentials = acknowledge_credentials(call.run_dir, call.request.ids)
    return AcknowledgeAnswer(acknowledged=prompts.acknowledged + credentials)


def _context(call: Call) -> ContextAnswer:
    return compose_context(call.crew, call.request)


def _authorize(call: Call) -> AuthorizeAnswer:
    if not call.may_wait and not call.server.guards.is_current(call.run_dir):
        raise WouldWait
    return authorize(call.run_dir, call.request, cache=call.server.guards)


def _server_health(call: Call) -> ServerHealth:
    return server_health(call.server.uptime(), call.server.streams)


def _agents(call: Call) -> AgentsAnswer:
    return list_agents(call.crew)


def _run_health(call: Call) -> RunHealth:
    return run_health(call.crew, call.run_dir, call.server.seconds_unanswered(call.run), call.server.telemetry)


def _report_health(call: Call) -> ReportAnswer:
    report_health(call.run_dir, call.request, call.crew.clock.now())
    call.server.open_questions.pop(call.run, None)
    return ReportAnswer(recorded=True)


def _telemetry(call: Call) -> TelemetryAnswer:
    now, logs = call.crew.clock.now(), call.server.telemetry
    if not call.may_wait and not logs.log_of(call.run_dir).is_current():
        raise WouldWait
    return record_telemetry(call.run_dir, call.request, now, logs, may_wait=call.may_wait)


def _identity(call: Call) -> IdentityAnswer:
    return identify(call.crew, call.request, partial(current_credentials, call.crew), call.session)


def _credentials(call: Call) -> CredentialReportAnswer:
    return report_credential(call.crew, call.request)


WORKER_OPERATIONS: Final = (
    Operation(
        "identity",
        "POST",
        "/v1/identity",
        "Exchange the one-time token of the session's environment for the run's identity and its bearer token",
        Access.PUBLIC,
        _identity,
        IdentityAnswer,
        IdentityAnswer(
            run_id=RUN,
            role="coder",
            repository="/home/ann/shop",
            agent_name="coder-1",
            session_id=RUN,
            token=f"{RUN}:the-bearer-token",
            task_id="invoice-model",
            worktree="/home/ann/shop.worktrees/s1",
            credentials=(Credential(type="api_key", name="MODEL_API_KEY", value="the-secret"),),
            env={"LIZA_RUN": RUN, "LIZA_TASK": "invoice-model"},
        ),
        request=IdentityRequest,
        request_example=IdentityRequest(token=f"{RUN}:the-one-time-token"),
        # The command of an account may take seconds.
        is_slow=True,
    ),
    Operation(
        "credentials",
        "POST",
        "/v1/credentials",
        "Report that a credential ends, is at its limit or was refused: another one follows on the stream",
        Access.RUN,
        _credentials,
        CredentialReportAnswer,
        CredentialReportAnswer(applied=True),
        request=CredentialReport,
        request_example=CredentialReport(
            run_id=RUN, state=CredentialState.LIMITED, name="MODEL_API_KEY", until=_TIME, reason="429: usage limit"
        ),
        is_slow=True,
        wakes_stream=True,
    ),
    Operation(
        "lifecycle",
        "POST",
        "/v1/lifecycle",
        "Report a transition of the run",
        Access.RUN,
        _lifecycle,
        LifecycleAnswer,
        LifecycleAnswer(applied=True, state="idle"),
        request=LifecycleRequest,
        request_example=LifecycleRequest(event=LifecycleEvent.IDLE, run_id=RUN, timestamp=_TIME, session_id="4f2c"),
        wakes_stream=True,
    ),
    Operation(
        "prompt",
        "POST",
        "/v1/prompt",
        "Queue a prompt for a run",
        Access.PERSON,
        _prompt,
        PromptAnswer,
        PromptAnswer(accepted=True, queued=False, position=0, id=PROMPT),
        request=PromptRequest,
        request_example=PromptRequest(
            run_id=RUN,
            content="Round half up, as in specs/tax.md",
            priority=PromptPriority.SYSTEM,
            metadata=PromptMetadata(sender="ann", task_id="invoice-model"),
        ),
        wakes_stream=True,
    ),
    Operation(
        "acknowledge",
        "POST",
        "/v1/acknowledge",
        "Confirm events of the stream: they are not delivered again",
        Access.RUN,
        _acknowledge,
        AcknowledgeAnswer,
        AcknowledgeAnswer(acknowledged=1),
        request=AcknowledgeRequest,
        request_example=AcknowledgeRequest(run_id=RUN, ids=(PROMPT,)),
        wakes_stream=True,
    ),
    Operation(
        "context",
        "POST",
        "/v1/context",
        "The sections of the run's context",
        Access.RUN,
        _context,
        ContextAnswer,
        ContextAnswer(
            run_id=RUN,
            sections=(ContextSection(type=SectionType.ROLE, content="You are coder-1, a coder."),),
            mode=ContextMode.FULL,
        ),
        request=ContextRequest,
        request_example=ContextRequest(run_id=RUN),
    ),
    Operation(
        "authorize",
        "POST",
        "/v1/authorize",
        "Ask whether a tool may run",
        Access.RUN,
        _authorize,
        AuthorizeAnswer,
        AuthorizeAnswer(allowed=False, reason="[liza] not run: nothing is pushed here", rule="no-push"),
        request=AuthorizeRequest,
        request_example=AuthorizeRequest(
            run_id=RUN, tool="Bash", input={"command": "git push --force"}, context=ToolContext(role="coder")
        ),
        max_inline=MAX_INLINE_TOOL,
    ),
    Operation(
        "run-health",
        "GET",
        "/v1/runs/{run}/health",
        "The health of a run",
        Access.READER,
        _run_health,
        RunHealth,
        RunHealth(
            status=HealthStatus.HEALTHY,
            run_id=RUN,
            uptime_seconds=3600.0,
            current_state=WorkerState.IDLE,
            source="reported",
            last_activity=_TIME,
            context_usage=0.73,
        ),
    ),
    Operation(
        "report-health",
        "POST",
        "/v1/runs/{run}/health",
        "Answer a question for the health of the run, or report it unasked",
        Access.RUN,
        _report_health,
        ReportAnswer,
        ReportAnswer(recorded=True),
        request=HealthReport,
        request_example=HealthReport(
            run_id=RUN,
            status=HealthStatus.HEALTHY,
            current_state=WorkerState.BUSY,
            last_activity=_TIME,
            question=f"{RUN}-3",
            context_usage=0.41,
        ),
    ),
    Operation(
        "health",
        "GET",
        "/v1/health",
        "The health of the server",
        Access.PUBLIC,
        _server_health,
        ServerHealth,
        ServerHealth(status=HealthStatus.HEALTHY, version="0.2.0", uptime_seconds=3600.0, runs=3),
    ),
    Operation(
        "agents",
        "GET",
        "/v1/agents",
        "The agents of the crew with their operating states",
        Access.READER,
        _agents,
        AgentsAnswer,
        AgentsAnswer(
            agents=(
                ListedAgent(
                    id="coder-1",
                    role="coder",
                    state=AgentState.WORKING,
                    evidence=f"{RUN} works on invoice-model",
                    state_since=_TIME,
                    run_id=RUN,
                    task_id="invoice-model",
                ),
            )
        ),
    ),
    Operation(
        "telemetry",
        "POST",
        "/v1/telemetry",
        "Report what turns of the run have used",
        Access.RUN,
        _telemetry,
        TelemetryAnswer,
        TelemetryAnswer(recorded=1, repeated=0),
        request=TelemetryRequest,
        max_inline=MAX_INLINE_TELEMETRY,
        request_example=TelemetryRequest(
            run_id=RUN,
            events=(
                TelemetryEvent(
                    id="turn-12",
                    timestamp=_TIME,
                    usage=TurnUsage(
                        input_tokens=12_000, output_tokens=3_500, cache_read_tokens=8_000, model="m-1", cost_usd=0.2325
                    ),
                    tools_called=(ReportedCall(name="shell", duration_ms=1_200), ReportedCall(name="read")),
                    context_usage=0.41,
                ),
            ),
        ),
    ),
)
