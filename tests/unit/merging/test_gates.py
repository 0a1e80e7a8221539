"""Gates: which apply, what counts as flaky, and what a wrong one is refused with."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from liza.config.rules import settings
from liza.model import gates
from liza.model.configuration import Config, Gate, QueueSettings
from liza.model.gates import FLAKY_RETRIES, GateOutcome, GateRun

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LINT = Gate(name="lint", command="ruff check", paths=("*.py", "pyproject.toml"))
DOCS = Gate(name="docs", command="make docs", paths=("docs/*",))
CONFIG = Config(integration_command="make test", gates=(LINT, DOCS))


def run(outcome: GateOutcome, candidate: str = "c", seconds: float = 1.0, gate: str = "tests") -> GateRun:
    return GateRun(time=NOW, gate=gate, candidate=candidate, subject="t", tasks=1, seconds=seconds, outcome=outcome)


RED, GREEN = run(GateOutcome.RED), run(GateOutcome.GREEN)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ((), ["tests"]),
        (("README.md",), ["tests"]),
        (("src/a/b.py",), ["tests", "lint"]),
        (("docs/a/b.md", "pyproject.toml"), ["tests", "lint", "docs"]),
        (("olddocs/a.md",), ["tests"]),
    ],
)
def test_a_gate_with_paths_runs_only_when_one_changes(changed: tuple[str, ...], names: list[str]) -> None:
    assert [gate.name for gate in gates.applicable_gates(CONFIG, "integration", changed)] == names


@pytest.mark.parametrize(("branch", "names"), [("integration", ["tests", "whole"]), ("epic/shop", ["tests", "part"])])
def test_a_gate_with_branches_runs_only_for_those_branches(branch: str, names: list[str]) -> None:
    whole, part = (
        Gate(name=name, command="true", branches=(pattern,))
        for name, pattern in (("whole", "integration"), ("part", "epic/*"))
    )
    config = Config(integration_command="make test", gates=(whole, part))
    assert [gate.name for gate in gates.applicable_gates(config, branch, ("a.py",))] == names


@pytest.mark.parametrize(
    ("runs", "flaky", "retries"),
    [
        ((), 0, 1),
        ((RED,), 0, 1),
        ((RED, RED), 0, 1),
        ((run(GateOutcome.RED, "d"), GREEN), 0, 1),
        ((RED, GREEN), 1, FLAKY_RETRIES),
        ((run(GateOutcome.TIMEOUT), GREEN), 1, FLAKY_RETRIES),
        ((run(GateOutcome.RUNNING), GREEN), 0, 1),
        ((RED, GREEN, run(GateOutcome.RED, "d"), run(GateOutcome.GREEN, "d")), 2, FLAKY_RETRIES),
    ],
)
def test_a_gate_that_passed_on_repeat_is_flaky(runs: tuple[GateRun, ...], flaky: int, retries: int) -> None:
    assert gates.count_flaky(gates.recent_runs(runs, "tests")) == flaky
    assert gates.allowed_retries(CONFIG, runs, {"tests"}) == retries
    assert gates.allowed_retries(replace(CONFIG, queue=QueueSettings(retries=0)), runs, {"tests"}) == 0


def test_other_gates_need_no_more_evidence_than_before() -> None:
    assert gates.allowed_retries(CONFIG, (RED, GREEN), {"lint"}) == 1


def test_a_green_run_after_a_red_one_is_reported_once() -> None:
    assert gates.newly_flaky((RED,), (GREEN,)) == (GREEN,)
    assert gates.newly_flaky((run(GateOutcome.RED, "d"),), (GREEN,)) == ()
    assert gates.newly_flaky((RED,), (RED,)) == ()


def test_the_time_of_a_batch_is_estimated_from_gate_medians() -> None:
    times = [run(GateOutcome.GREEN, seconds=seconds) for seconds in (1.0, 100.0, 10.0)]
    assert gates.estimate_batch_seconds(CONFIG, times, "integration") is None
    others = [run(GateOutcome.GREEN, seconds=4.0, gate=name) for name in ("lint", "docs")]
    assert gates.estimate_batch_seconds(CONFIG, [*times, *others], "integration") == 10.0
    alone = replace(CONFIG, queue=QueueSettings(parallel=1))
    assert gates.estimate_batch_seconds(alone, [*times, *others], "integration") == 18.0
    assert gates.estimate_batch_seconds(Config(), (), "integration") == 0.0
    # A gate that does not apply takes no time, and need not be measured.
    assert gates.estimate_batch_seconds(alone, [*times, *others], "integration", ("a.py",)) == 14.0
    assert gates.estimate_batch_seconds(alone, times, "integration", ("README.md",)) == 10.0


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        (Gate(name="lint", command="x"), "two gates are named lint"),
        (Gate(name="tests", command="x"), "two gates are named tests"),
        (Gate(name="../x", command="x"), "is no name of a gate"),
        (Gate(name="Lint", command="x"), "is no name of a gate"),
        (Gate(name="a", command=" "), "has no command"),
        (Gate(name="a", command="x", timeout=0), "time limit of 0"),
    ],
)
def test_a_gate_that_cannot_be_run_is_named(added: Gate, problem: str) -> None:
    (found,) = gates.gate_problems(replace(CONFIG, gates=(*CONFIG.gates, added)))
    assert problem in found
    assert gates.gate_problems(CONFIG) == ()


def test_gates_and_queue_count_only_once_a_person_confirms_them() -> None:
    confirmed = settings.confirmable_values(CONFIG)
    forged = replace(CONFIG, gates=(), queue=QueueSettings(retries=9))
    assert {setting.key for setting in settings.find_unconfirmed(forged, confirmed)} == {"gates", "queue"}
    assert settings.effective_config(forged, confirmed) == CONFIG
