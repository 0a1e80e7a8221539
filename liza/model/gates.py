"""Gates of a candidate: which of them apply, how often a red one is repeated, and how long they take. Pure."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from liza.model.clean_environment import REMOVED_VARIABLES
from liza.model.configuration import TESTS_GATE, Config, Gate
from liza.model.value_classes import AwareDatetime, FrozenStruct, Value

FLAKY_RETRIES = 3
"""Repetitions of a gate that was flaky before. At 5 % false failures, one candidate in 160,000 is wrongly red."""
RECENT_RUNS = 200
"""Number of last runs of a gate from which its time is estimated, and in which it counts as flaky."""
_WILDCARD = re.compile(r"[*?[]")
NAME_FORM = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
SET_UP_RUN, GENERATOR_RUN = "(set-up)", "(generator)"
"""Names under which the set-up of a merge slot and a command of ``config.generated`` are recorded. No gate can have
them."""


class GateFindingKind(StrEnum):
    """What follows from an observation beside the exit status of a gate."""

    RED = "red"
    """The candidate fails: only its own run shows this."""
    UNTESTED = "untested"
    """The run says nothing about the commit. No task is to blame; a person decides."""
    REMARK = "remark"
    """A person allowed it: the merge is tested, but…"""


class GateFinding(Value):
    """An observation beside the exit status of a gate, in one phrase. ``hint``: the command that resolves it."""

    kind: GateFindingKind
    text: str
    hint: str = ""


class GateOutcome(StrEnum):
    """How a gate ended on a candidate; RUNNING is recorded when it starts."""

    RUNNING = "running"
    GREEN = "green"
    RED = "red"
    TIMEOUT = "timeout"


class GateRun(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a gate on a candidate. ``subject`` is the last task of the candidate; ``tasks`` how many tasks it has
    that were tested together; ``seconds`` its running time. ``command``: what ran; ``log``: the SHA-256 of what it
    printed, empty if that is unknown; ``remarks``: what a person allowed about the commit, or why it is untested."""

    time: AwareDatetime
    gate: str
    candidate: str
    subject: str
    tasks: int
    seconds: float
    outcome: GateOutcome
    command: str = ""
    log: str = ""
    remarks: tuple[str, ...] = ()


def applicable_gates(config: Config, branch: str, changed: Sequence[str]) -> tuple[Gate, ...]:
    """Return the gates that a candidate for ``branch`` which changes these files must pass.

    A name that ends in a slash is a submodule: any of its files may have changed.
    """
    return tuple(gate for gate in branch_gates(config, branch) if not gate.paths or _concerns(gate.paths, changed))


def branch_gates(config: Config, branch: str) -> tuple[Gate, ...]:
    """Return the gates of a branch, whatever a candidate changes."""
    return tuple(gate for gate in config.all_gates if not gate.branches or _matches((branch,), gate.branches))


def gates_digest(config: Config, branch: str) -> str:
    """Return a digest of all that decides how a candidate for ``branch`` is tested.

    The result of a test counts only as long as this digest stays the same.
    """
    parts = (branch_gates(config, branch), config.sandbox_setup, config.environment, config.gate_environment)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _concerns(patterns: Sequence[str], changed: Sequence[str]) -> bool:
    submodules = [name for name in changed if name.endswith("/")]
    return _matches(changed, patterns) or any(
        _may_match_below(name, pattern) for pattern in patterns for name in submodules
    )


def _may_match_below(directory: str, pattern: str) -> bool:
    """Return whether a pattern can match a file below a directory, judged by the text before its first wildcard."""
    prefix = _WILDCARD.split(pattern, 1)[0]
    return prefix.startswith(directory) or (prefix != pattern and directory.startswith(prefix))


def have_paths(config: Config) -> bool:
    """Return whether the files that a candidate changes decide which gates it must pass."""
    return any(gate.paths for gate in config.gates)


def recent_runs(runs: Iterable[GateRun], gate: str) -> tuple[GateRun, ...]:
    """Return the last runs of a gate that have ended, oldest first."""
    ended = (run for run in runs if run.gate == gate and run.outcome is not GateOutcome.RUNNING)
    return tuple(ended)[-RECENT_RUNS:]


def last_runs(runs: Iterable[GateRun], candidate: str) -> tuple[GateRun, ...]:
    """Return the last run of the set-up and of each gate on a candidate, in the order of their first runs."""
    return tuple({run.gate: run for run in runs if run.candidate == candidate}.values())


def last_gate_runs(runs: Iterable[GateRun], candidate: str) -> tuple[GateRun, ...]:
    """Return the last run of each gate on a candidate, in the order of their first runs."""
    return tuple(run for run in last_runs(runs, candidate) if run.gate != SET_UP_RUN)


def count_flaky(runs: Iterable[GateRun]) -> int:
    """Return on how many candidates these runs of one gate were red and then green."""
    outcomes: dict[str, set[bool]] = {}
    for run in runs:
        outcomes.setdefault(run.candidate, set()).add(run.outcome is GateOutcome.GREEN)
    return sum(len(both) == 2 for both in outcomes.values())


def newly_flaky(past: Iterable[GateRun], last: Iterable[GateRun]) -> tuple[GateRun, ...]:
    """Return the green runs of ``last`` whose gate was red before on the same candidate."""
    red = {(run.gate, run.candidate) for run in past if run.outcome in (GateOutcome.RED, GateOutcome.TIMEOUT)}
    return tuple(run for run in last if run.outcome is GateOutcome.GREEN and (run.gate, run.candidate) in red)


def allowed_retries(config: Config, runs: Sequence[GateRun], red: Iterable[str]) -> int:
    """Return how often a candidate is tested again whose gates ``red`` failed.

    A gate that was flaky before needs more evidence, unless ``config.queue.retries`` is 0.
    """
    if config.queue.retries == 0:
        return 0
    is_flaky = any(count_flaky(recent_runs(runs, gate)) for gate in red)
    return max(config.queue.retries, FLAKY_RETRIES) if is_flaky else config.queue.retries


def estimate_seconds(runs: Iterable[GateRun]) -> float | None:
    """Return the median time of these runs in seconds; None without a run that came to its end."""
    times = sorted(run.seconds for run in runs if run.outcome is not GateOutcome.TIMEOUT)
    return times[len(times) // 2] if times else None


def estimate_batch_seconds(
    config: Config, runs: Sequence[GateRun], branch: str, changed: Sequence[str] | None = None
) -> float | None:
    """Return how many seconds the gates of a batch take, from their last runs; None if one was never measured.

    ``branch``: where the batch is published. ``changed``: the files that it changes; None if they are unknown: then all
    gates of the branch count.
    """
    applicable = branch_gates(config, branch) if changed is None else applicable_gates(config, branch, changed)
    times = [estimate_seconds(recent_runs(runs, gate.name)) for gate in applicable]
    measured = [seconds for seconds in times if seconds is not None]
    if len(measured) < len(times):
        return None
    return max(*measured, sum(measured) / config.queue.parallel) if measured else 0.0


def gate_problems(config: Config) -> tuple[str, ...]:
    """Return what is wrong with the names, commands and limits of ``config.gates``, a phrase each."""
    problems = []
    names = [gate.name for gate in config.all_gates]
    for gate in config.gates:
        if not NAME_FORM.fullmatch(gate.name):
            problems.append(f"{gate.name!r} is no name of a gate: small letters, digits, - and _, at most 40")
        elif (gate.name == TESTS_GATE and config.has_tests) or names.count(gate.name) > 1:
            problems.append(f"two gates are named {gate.name}")
        if not gate.command.strip():
            problems.append(f"gate {gate.name} has no command: it would pass for every candidate")
        if gate.timeout is not None and gate.timeout < 1:
            problems.append(f"gate {gate.name} has a time limit of {gate.timeout} seconds")
    return tuple(dict.fromkeys(problems))


_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=[^\0\r\n]*")
_REFUSED_NAMES = ("PATH", "HOME", *REMOVED_VARIABLES)
_REFUSED_PREFIXES = ("LIZA_", "GIT_")
EXPECTED = "NAME=VALUE, without a name that Liza, git or the choice of an environment needs"


def find_refused(entries: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the entries that are no variables of gates. A value is left out: it may be a secret."""
    return tuple(_name(entry) for entry in entries if not _is_allowed(entry))


def uncached_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which test runners run tests whose cached result they would print.

    Go's cache does not know the files that a child process of a test reads. A build ignores this flag.
    """
    return {"GOFLAGS": f"{environ.get('GOFLAGS', '')} -count=1".strip()}


def _is_allowed(entry: str) -> bool:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return False
    return match[1] not in _REFUSED_NAMES and not match[1].startswith(_REFUSED_PREFIXES)


def _name(entry: str) -> str:
    return repr(entry.partition("=")[0][:40])
