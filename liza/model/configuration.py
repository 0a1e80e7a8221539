"""The settings of a crew: the section ``config`` of the board."""

# Without `from __future__ import annotations`: as in model.py.
from enum import StrEnum
from typing import Literal

from liza.model.value_classes import FrozenStruct


class Budget(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits; None means no limit."""

    money_per_task: float | None = None
    money_per_sprint: float | None = None
    tokens_per_task: int | None = None
    tokens_per_sprint: int | None = None
    seconds_per_task: int | None = None
    seconds_per_sprint: int | None = None


class Delivery(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How messages are delivered to a running agent."""

    readiness_timeout: float = 30.0
    require_acknowledgment: bool = True
    acknowledgment_timeout: float = 5.0
    retry_backoffs: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 30.0)
    file_fallback_after_attempts: int = 3
    send_notification_on_failure: bool = True
    readiness_patterns: tuple[str, ...] = ()
    acknowledgment_patterns: tuple[str, ...] = (r"ACK:\s*context received",)


class TestProof(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of the last proof of the tests, and the command and the set-up that were used for it.

    ``outcome`` is a ``test_proof.ProofVerdict``; empty before the first proof. ``why``: the reason if it is not proved.
    ``writes``: tracked files that the commands write on the person's own commit too. ``green_parts``: parts of the
    command that stay green when all sources fail. ``reads_last_commit``: the command tests only what the last commit
    changes. ``setup_builds``: the set-up reads sources, so it runs for each candidate. ``meaning``: digest of the files
    that define what the command does, such as ``Makefile`` and ``conftest.py``. ``changed``: those that have changed
    since. ``gates``: the commands of ``config.gates`` at that time. ``environment``: digest of the list of packages in
    ``config.environment``; empty without one. ``boxed``: the proof ran in a box.
    """

    outcome: str = ""
    command: str = ""
    setup: str = ""
    why: str = ""
    writes: tuple[str, ...] = ()
    green_parts: tuple[str, ...] = ()
    reads_last_commit: bool = False
    setup_builds: bool = False
    meaning: str = ""
    environment: str = ""
    changed: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    boxed: bool = False


class LoopLimits(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits that detect a session without progress. 0 turns a limit off.

    At a limit the session is reported; at twice the limit it is ended.
    """

    same_calls: int = 20
    pause: float = 10.0
    unchanged_calls: int = 300
    unchanged_seconds: int = 600


class BreakerSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Thresholds of the circuit breaker. 0 turns a pattern off. Only events within ``window`` seconds count."""

    window: int = 21600
    similarity: int = 85
    repeated_error: int = 8
    review_loop: int = 6
    trade_offs: int = 10
    spec_ambiguity: int = 5
    integration_failures: int = 60
    integration_merges: int = 10
    sessions_without_merge: int = 60
    cost_without_merge: float = 0.0
    tests_weakened: int = 1
    severity: dict[str, str] = {}


class GuardSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Guards of agents' tools."""

    on_error: Literal["deny", "allow"] = "deny"


class Network(StrEnum):
    """Whether a command in a box has the network. It always has a loopback interface."""

    ON = "on"
    OFF = "off"


class Gate(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A check that a candidate must pass. ``paths``: it runs only if the candidate changes a file that matches one of
    these patterns, in which ``*`` matches any characters; empty: always. ``branches``: patterns of the branches whose
    candidates it checks; empty: all. ``timeout``: seconds; None: ``config.integration_timeout``. ``network``: None:
    ``config.network``.
    """

    name: str
    command: str
    paths: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    timeout: int | None = None
    network: Network | None = None


class QueueSettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of the merge queue."""

    batch: int = 20
    parallel: int = 2
    retries: int = 1


class SlotLimits(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of the slots; None: no limit."""

    max: int | None = None
    max_bytes: int | None = None


TESTS_GATE = "tests"
"""Name of the gate that runs ``config.integration_command``."""


FULL_CHECKOUT = "full"
"""The value of ``config.checkout`` with which a candidate is tested with all its files."""


class NotifySettings(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where `liza up` sends alarms that need a person. ``targets`` name a variable or a file with a URL of apprise.

    ``link``: address of the page of the crew.
    """

    targets: tuple[str, ...] = ()
    exec: str | None = None
    quiet: str | None = None
    link: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether notices are sent at all."""
        return bool(self.targets or (self.exec or "").strip())


class Confinement(StrEnum):
    """Whether what agents write runs in a box."""

    AUTO = "auto"
    """Where this machine can make one."""
    REQUIRED = "required"
    OFF = "off"


class OverlapRule(StrEnum):
    """What is done about a task that has the same files as one in work."""

    WARN = "warn"
    """Other tasks of the same priority come first."""
    HOLD = "hold"
    """It is not claimed until that one is merged or closed."""


class Config(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings. ``project.setting_meanings`` has the meaning and the unit of each, also of the nested ones."""

    max_coder_iterations: int = 10
    max_review_cycles: int = 5
    planning_rounds: int = 3
    heartbeat_interval: int = 60
    lease_duration: int = 300
    hung_after: int = 600
    poll_interval: int = 30
    archive_after: int = 200
    ready_timeout: int | None = None
    answer_timeout: int = 300
    idle_after: int = 60
    grace: int = 20
    restart_after_handoff: float = 2.0
    restart_after_crash: float = 5.0
    context_handoff: float = 0.8
    session_max: int | None = None
    integration_branch: str = "integration"
    integration_command: str | None = None
    integration_timeout: int = 1800
    sandbox_setup: str | None = None
    sandbox_setup_files: tuple[str, ...] = ()
    sandbox_copy: tuple[str, ...] = ()
    sandbox_keep: tuple[str, ...] = ()
    merge_clean: str = "after_red"
    environment: str | None = None
    gate_environment: tuple[str, ...] = ("CI=true",)
    env_allow: tuple[str, ...] = ()
    tests_write: tuple[str, ...] = ()
    generated: dict[str, str] = {}
    installed_changes: tuple[str, ...] = ()
    checkout: Literal["full", "sparse"] = "full"
    proof: TestProof = TestProof()
    proof_runs: int = 3
    unproved_commands: tuple[str, ...] = ()
    programs: dict[str, str] = {}
    permissions: str | None = None
    confinement: Confinement = Confinement.AUTO
    network: Network = Network.ON
    shared: tuple[str, ...] = ()
    budget: Budget = Budget()
    delivery: Delivery = Delivery()
    loop: LoopLimits = LoopLimits()
    breaker: BreakerSettings = BreakerSettings()
    guards: GuardSettings = GuardSettings()
    queue: QueueSettings = QueueSettings()
    gates: tuple[Gate, ...] = ()
    slots: SlotLimits = SlotLimits()
    routing: Literal["first", "record"] = "first"
    overlap: OverlapRule = OverlapRule.WARN
    work_hours: str | None = None
    brief: Literal["file", "prompt"] = "file"
    pull_request_interval: int = 60
    push: Literal["never", "auto"] = "never"
    notify: NotifySettings = NotifySettings()

    @property
    def gate_variables(self) -> dict[str, str]:
        """The variables of ``gate_environment``. An entry without ``=`` sets an empty value."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self.gate_environment)}

    @property
    def has_tests(self) -> bool:
        """Whether there is a test command. A blank command does not count: it would pass for every merge."""
        return bool((self.integration_command or "").strip())

    @property
    def all_gates(self) -> tuple[Gate, ...]:
        """All gates of a candidate: the test command, if there is one, and ``gates``."""
        tests = Gate(name=TESTS_GATE, command=self.integration_command or "")
        return ((tests,) if self.has_tests else ()) + self.gates
