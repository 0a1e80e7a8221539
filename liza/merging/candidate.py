"""Test a candidate: run its gates in merge slots, and detect refs that they moved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from liza.crew.crew import Crew
from liza.git import merge_refs
from liza.merging import gate_log, gate_runner
from liza.merging.gate_runner import PreparedMergeSlot
from liza.model import gates
from liza.model.errors import LizaError
from liza.model.gates import GateFinding, GateOutcome, GateRun
from liza.model.model import Gate
from liza.model.value_classes import Value


class CandidateRun(Value):
    """A commit to test. ``name`` is a task or another word for the log files, ``branch`` the branch that the commit is
    to replace the commit ``base`` of. ``tasks``: how many tasks the commit has that ``base`` has not. ``gates``:
    run only these; None: all that apply. ``replaces``: the commit that the gates get as LIZA_BASE; None: ``base``.
    ``always``: they run also if it is clear beforehand that they say nothing about the commit.
    """

    name: str
    commit: str
    base: str
    branch: str
    tasks: int = 1
    gates: tuple[str, ...] | None = None
    replaces: str | None = None
    always: bool = False


class CandidateResult(Value):
    """Result of the tests of a candidate.

    ``failure`` is the message for the coder, None if no gate is red. ``tested`` is False if no gate applies, and with
    ``untested``, the reason why the runs say nothing about the commit. ``remarks``: what a person allowed.
    ``moved_refs`` are the refs that moved during the tests; ``sure`` is False if another process
    may have moved them. ``rewound_from`` is the commit of integration before it was deleted or moved back, else None.
    ``runs`` are the runs of its gates.
    """

    failure: str | None
    tested: bool
    moved_refs: tuple[str, ...] = ()
    rewound_from: str | None = None
    sure: bool = True
    runs: tuple[GateRun, ...] = ()
    untested: GateFinding | None = None
    remarks: tuple[str, ...] = ()

    @property
    def red_gates(self) -> tuple[str, ...]:
        """Names of the gates that the candidate failed."""
        return tuple(run.gate for run in self.runs if run.outcome is not GateOutcome.GREEN)

    def told(self, whose: str) -> str:
        """Return a sentence about the refs that moved during the tests of ``whose``."""
        names = ", ".join(self.moved_refs)
        if self.sure:
            return f"the tests of {whose} moved {names}"
        return f"{names} moved, or disappeared, while the tests of {whose} ran: the tests or another process did that"


def run_candidate_tests(crew: Crew, run: CandidateRun) -> CandidateResult:
    """Run the gates of a candidate.

    A slot is marked until its gates pass, so that the files of a failed or killed run are removed before the next
    one. Raises GitFailed, OSError.
    """
    chosen = _choose_gates(crew, run)
    if not chosen:
        return CandidateResult(None, False)
    slots = gate_runner.prepare_slots(crew, run.name, run.commit, len(chosen))
    before, commits_before = merge_refs.snapshot_refs(crew.git), _list_commits_made(crew, slots)
    replaces = run.replaces or run.base
    on_start = partial(_record_start, crew, run)
    job = gate_runner.GateJob(run.name, run.commit, replaces, run.branch, chosen, slots, on_start, run.always)
    outcome = gate_runner.run_gates(crew, job)
    changes = merge_refs.find_ref_changes(
        crew.git, before, run.commit, _list_commits_made(crew, slots) - commits_before
    )
    branch = f"refs/heads/{run.branch}"
    return CandidateResult(
        outcome.failure,
        outcome.untested is None,
        merge_refs.refs_moved_by_tests(changes),
        before.get(branch) if merge_refs.is_branch_rewound(changes, branch) else None,
        merge_refs.is_sure(changes),
        tuple(_to_gate_run(crew, run, timing) for timing in outcome.timings),
        outcome.untested,
        outcome.remarks,
    )


def _choose_gates(crew: Crew, run: CandidateRun) -> tuple[Gate, ...]:
    config = crew.board.read().config
    changed = merge_refs.list_changed_paths(crew.git, run.base, run.commit) if gates.have_paths(config) else ()
    if run.base == run.commit:
        chosen = gates.branch_gates(config, run.branch)  # the branch alone: nothing is changed, and all of it counts
    else:
        chosen = gates.applicable_gates(config, run.branch, changed)
    return chosen if run.gates is None else tuple(gate for gate in chosen if gate.name in run.gates)


def _list_commits_made(crew: Crew, slots: Sequence[PreparedMergeSlot]) -> frozenset[str]:
    return frozenset().union(*(merge_refs.list_commits_made(crew.worktrees.slot_git(slot.name)) for slot in slots))


def _record_start(crew: Crew, run: CandidateRun, gate: str) -> None:
    """Record that a gate runs, for `liza queue`. A failure only hides it there."""
    with suppress(LizaError, OSError):
        timing = gate_runner.GateTiming(gate, GateOutcome.RUNNING, 0.0)
        gate_log.append_runs(crew.paths, [_to_gate_run(crew, run, timing)])


def _to_gate_run(crew: Crew, run: CandidateRun, timing: gate_runner.GateTiming) -> GateRun:
    return GateRun(
        time=crew.clock.now(),
        gate=timing.gate,
        candidate=run.commit,
        subject=run.name,
        tasks=run.tasks,
        seconds=round(timing.seconds, 2),
        outcome=timing.outcome,
    )
