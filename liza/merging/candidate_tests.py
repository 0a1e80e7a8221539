"""Test a candidate: run its gates in merge slots, one after another, and detect refs that they moved."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path

from liza.config.rules import test_proof
from liza.config.rules.test_proof import ProofVerdict
from liza.crew.crew import Crew
from liza.git import git_refs, local_files, slot_setup
from liza.git.worktrees import Worktrees
from liza.merging import gate_log
from liza.model import gates, history_events
from liza.model.configuration import FULL_CHECKOUT, TESTS_GATE, Config, Gate, Network
from liza.model.errors import LizaError, NotRegularFile, Refused
from liza.model.gates import GateFinding, GateFindingKind, GateOutcome, GateRun
from liza.model.model import Clock
from liza.model.paths import Paths
from liza.model.tested import NO_GATE_APPLIED, HowTested, judge_commit
from liza.model.value_classes import Value, replace
from liza.programs.session import log_file
from liza.project import commands, foreign_runs, installed_packages, listeners, proof, tree_snapshot
from liza.project.commands import CommandBox
from liza.project.rules import command_parts, output_causes, package_records, tree_changes
from liza.project.tree_snapshot import TreeSnapshot
from liza.system import untrusted_files


class CandidateRun(Value):
    """A commit to test. ``name`` is a task or another word for the log files, ``branch`` the branch that the commit is
    to replace the commit ``base`` of. ``tasks``: how many tasks the commit has that ``base`` has not. ``gates``:
    run only these; None: all that apply. ``replaces``: the commit that the gates get as LIZA_BASE; None: ``base``.
    ``always``: they run also if it is clear beforehand that they say nothing about the commit. ``is_foreign``: a
    stranger wrote it, so it runs in a box without network and logins, or not at all.
    """

    name: str
    commit: str
    base: str
    branch: str
    tasks: int = 1
    gates: tuple[str, ...] | None = None
    replaces: str | None = None
    always: bool = False
    is_foreign: bool = False


class CandidateResult(Value):
    """Result of the tests of a candidate.

    ``failure`` is the message for the coder, None if no gate is red. ``how``: what a green commit may be called.
    ``moved_refs`` are the refs that moved during the tests; ``sure`` is False if another process
    may have moved them. ``rewound_from`` is the commit of integration before it was deleted or moved back, else None.
    ``runs`` are the runs of its gates.
    """

    failure: str | None
    how: HowTested
    moved_refs: tuple[str, ...] = ()
    rewound_from: str | None = None
    sure: bool = True
    runs: tuple[GateRun, ...] = ()

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
        return CandidateResult(None, NO_GATE_APPLIED)
    if not run.is_foreign:
        return _test_in_slots(crew, run, chosen, prepare_slots(crew, run.name, run.commit, len(chosen)))
    crew = foreign_runs.confine(crew)
    # Nothing that a stranger's code wrote is there for the next run, not even for that of another stranger.
    crew.worktrees.discard(FOREIGN_SLOT)
    try:
        return _test_foreign(crew, run, chosen)
    finally:
        crew.worktrees.discard(FOREIGN_SLOT)


def _test_foreign(crew: Crew, run: CandidateRun, chosen: tuple[Gate, ...]) -> CandidateResult:
    """Run the set-up for what the commit replaces, with network, then the gates on the commit, without."""
    on_set_up = partial(record_timing, crew, run)
    base = _prepare_slot(crew, FOREIGN_SLOT, run.name, run.base)
    failure = set_up_slot(crew, base.name, on_set_up, is_own=True)
    if failure is not None:
        raise Refused(f"{run.branch} without {run.name}: {failure}", f"liza task show {run.name}")
    slot_setup.mark_tests_passed(crew.worktrees.slot_git(base.name))
    result = _test_in_slots(crew, run, chosen, (_prepare_slot(crew, FOREIGN_SLOT, run.name, run.commit),))
    if result.failure is None:
        return result
    return replace(result, failure=f"{result.failure}\n{foreign_runs.HOW}")


def _test_in_slots(
    crew: Crew, run: CandidateRun, chosen: tuple[Gate, ...], slots: tuple[PreparedMergeSlot, ...]
) -> CandidateResult:
    before, commits_before = git_refs.snapshot_refs(crew.git), _list_commits_made(crew.worktrees, slots)
    replaces = run.replaces or run.base
    on_start = partial(_record_start, crew, run)
    on_set_up = partial(record_timing, crew, run)
    job = GateJob(run.name, run.commit, replaces, run.branch, chosen, slots, on_start, on_set_up, run.always)
    outcome = run_gates(crew, job)
    changes = git_refs.find_ref_changes(
        crew.git, before, run.commit, _list_commits_made(crew.worktrees, slots) - commits_before
    )
    branch = f"refs/heads/{run.branch}"
    return CandidateResult(
        outcome.failure,
        outcome.how,
        git_refs.refs_moved_by_tests(changes),
        before.get(branch) if git_refs.is_branch_rewound(changes, branch) else None,
        git_refs.is_sure(changes),
        tuple(_to_gate_run(crew.clock, run, timing, outcome.how) for timing in outcome.timings),
    )


def _choose_gates(crew: Crew, run: CandidateRun) -> tuple[Gate, ...]:
    config = crew.board.read().config
    changed = git_refs.list_changed_paths(crew.git, run.base, run.commit) if gates.have_paths(config) else ()
    if run.base == run.commit:
        chosen = gates.branch_gates(config, run.branch)  # the branch alone: nothing is changed, and all of it counts
    else:
        chosen = gates.applicable_gates(config, run.branch, changed)
    return chosen if run.gates is None else tuple(gate for gate in chosen if gate.name in run.gates)


def _list_commits_made(worktrees: Worktrees, slots: Sequence[PreparedMergeSlot]) -> frozenset[str]:
    return frozenset().union(*(git_refs.list_commits_made(worktrees.slot_git(slot.name)) for slot in slots))


def _record_start(crew: Crew, run: CandidateRun, gate: str) -> None:
    """Record that a gate runs, for `liza queue`."""
    record_timing(crew, run, GateTiming(gate, GateOutcome.RUNNING, 0.0))


def record_timing(crew: Crew, run: CandidateRun, timing: GateTiming) -> None:
    """Record a run for `liza queue` and `liza up`. A failure only hides it there."""
    with suppress(LizaError, OSError):
        gate_log.append_runs(crew.paths, [_to_gate_run(crew.clock, run, timing)])


def _to_gate_run(clock: Clock, run: CandidateRun, timing: GateTiming, how: HowTested = NO_GATE_APPLIED) -> GateRun:
    return GateRun(
        time=clock.now(),
        gate=timing.gate,
        candidate=run.commit,
        subject=run.name,
        tasks=run.tasks,
        seconds=round(timing.seconds, 2),
        outcome=timing.outcome,
        command=timing.command,
        log=timing.log,
        remarks=(how.untested.text,) if how.untested is not None else how.remarks,
    )


MERGE_SLOT = "merge"
FOREIGN_SLOT = "merge-foreign"
"""The slot of what strangers wrote. It exists only while its gates run."""


class GateJob(Value):
    """Gates to run on ``commit``, a merge with ``branch``, in ``slots``, which are prepared. ``name`` is part of the
    names of the logs. ``base`` is the commit that the candidate replaces. ``on_start`` is called with the name of each
    gate that starts, ``on_set_up`` with each set-up that starts and ends, from any thread. ``always``: run the gates
    also while a server of another checkout listens."""

    name: str
    commit: str
    base: str
    branch: str
    gates: tuple[Gate, ...]
    slots: tuple[PreparedMergeSlot, ...]
    on_start: Callable[[str], None]
    on_set_up: Callable[[GateTiming], None]
    always: bool = False


class PreparedMergeSlot(Value):
    """A merge slot at a candidate, and its tracked files before set-up and gates run."""

    name: str
    files: TreeSnapshot


class GateTiming(Value):
    """How a gate ended, and after how many seconds. ``findings``: what was observed beside its exit status.
    ``command`` and ``log`` as in ``GateRun``."""

    gate: str
    outcome: GateOutcome
    seconds: float
    failure: str | None = None
    is_killed: bool = False
    findings: tuple[GateFinding, ...] = ()
    command: str = ""
    log: str = ""


class GatesOutcome(Value):
    """Result of all gates of a job. ``failure`` is the message for the coder; None: all are green."""

    failure: str | None
    timings: tuple[GateTiming, ...]
    how: HowTested


def prepare_slots(crew: Crew, name: str, commit: str, gates: int) -> tuple[PreparedMergeSlot, ...]:
    """Put as many merge slots at ``commit`` as ``gates`` can use at the same time.

    Raises GitFailed, OSError.
    """
    count = max(1, min(gates, crew.board.read().config.queue.parallel))
    slots = [MERGE_SLOT if number == 1 else f"{MERGE_SLOT}-{number}" for number in range(1, count + 1)]
    return tuple(_prepare_slot(crew, slot, name, commit) for slot in slots)


def _prepare_slot(crew: Crew, slot: str, name: str, commit: str) -> PreparedMergeSlot:
    config = _read_config(crew, slot)
    crew.worktrees.detach(slot, commit, f"merge-{_file_name(name)}")
    crew.worktrees.clean(slot, config)
    git = crew.worktrees.slot_git(slot)
    if config.checkout == FULL_CHECKOUT:
        local_files.make_full(git)
    slot_setup.mark_tests_started(git)
    commands.renew_git(crew.paths, git, config)
    return PreparedMergeSlot(slot, tree_snapshot.take_snapshot(git))


def run_gates(crew: Crew, job: GateJob) -> GatesOutcome:
    """Run all gates of a job, also after one is red; none if they would say nothing. Raises GitFailed, OSError."""
    server = None if job.always else _find_servers(crew, job)
    if server is not None:
        return GatesOutcome(None, (), judge_commit([server]))
    for slot in job.slots:
        failure = set_up_slot(crew, slot.name, job.on_set_up)
        if failure is not None:
            return GatesOutcome(failure, (), NO_GATE_APPLIED)
    timings = _run_in_turn(crew, job) if len(job.slots) == 1 else _run_side_by_side(crew, job)
    failures = [timing.failure for timing in timings if timing.failure is not None]
    if not failures:
        for slot in job.slots:
            slot_setup.mark_tests_passed(crew.worktrees.slot_git(slot.name))
    proof_findings = test_proof.proof_findings(crew.board.read().config, [gate.command for gate in job.gates])
    how = judge_commit([*proof_findings, *(finding for timing in timings for finding in timing.findings)])
    return GatesOutcome("\n".join(failures) or None, timings, how)


def _run_in_turn(crew: Crew, job: GateJob, gates: Sequence[Gate] | None = None) -> tuple[GateTiming, ...]:
    timings: list[GateTiming] = []
    slot = job.slots[0]
    for number, gate in enumerate(job.gates if gates is None else gates):
        if number or gates is not None:
            slot = _prepare_slot(crew, slot.name, job.name, job.commit)
            failure = set_up_slot(crew, slot.name, job.on_set_up)
            if failure is not None:
                return (*timings, GateTiming(gate.name, GateOutcome.RED, 0.0, failure))
        timings.append(_run_gate(crew, job, gate, slot))
    return tuple(timings)


def _run_side_by_side(crew: Crew, job: GateJob) -> tuple[GateTiming, ...]:
    """Run the gates, one at a time in each slot. A gate that was killed from outside is run again, alone."""
    waiting = deque(job.gates)
    cancelled = threading.Event()

    def work(slot: PreparedMergeSlot) -> list[GateTiming]:
        timings: list[GateTiming] = []
        while not cancelled.is_set():
            try:
                gate = waiting.popleft()
            except IndexError:
                break
            if timings:
                slot = _prepare_slot(crew, slot.name, job.name, job.commit)
                failure = set_up_slot(crew, slot.name, job.on_set_up)
                if failure is not None:
                    timings.append(GateTiming(gate.name, GateOutcome.RED, 0.0, failure))
                    continue
            timings.append(_run_gate(crew, job, gate, slot, cancelled))
        return timings

    timings = {timing.gate: timing for timing in _in_threads(work, job.slots, cancelled)}
    killed = [gate for gate in job.gates if timings[gate.name].is_killed]
    if killed:
        commands.kill_orphan_commands(crew.paths.root)
        timings |= {timing.gate: timing for timing in _run_in_turn(crew, job, killed)}
    return tuple(timings[gate.name] for gate in job.gates)


def _in_threads(
    work: Callable[[PreparedMergeSlot], list[GateTiming]],
    slots: Sequence[PreparedMergeSlot],
    cancelled: threading.Event,
) -> list[GateTiming]:
    """Return the results of ``work`` for each slot. If one fails or this process is told to exit, end all commands."""
    with commands.exit_on_signals(), ThreadPoolExecutor(len(slots), "gates") as pool:
        futures = [pool.submit(work, slot) for slot in slots]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            return [timing for future in futures for timing in future.result()]
        finally:
            cancelled.set()


def _run_gate(
    crew: Crew, job: GateJob, gate: Gate, slot: PreparedMergeSlot, cancelled: threading.Event | None = None
) -> GateTiming:
    packages, failure = check_packages(crew, slot.name, job.on_set_up)
    if failure is not None:
        return GateTiming(gate.name, GateOutcome.RED, 0.0, failure)
    config = _read_config(crew, slot.name)
    own = "" if gate.name == TESTS_GATE else f"-{gate.name}"
    log = crew.paths.logs / f"merge-{_file_name(job.name)}{own}.log"
    limit = config.integration_timeout if gate.timeout is None else gate.timeout
    slot = replace(slot, files=tree_snapshot.add_submodules(crew.worktrees.slot_git(slot.name), slot.files))
    job.on_start(gate.name)
    is_foreign = slot.name == FOREIGN_SLOT
    box = _open_box(crew, slot.name, None if is_foreign else gate.network)
    servers = [_find_servers(crew, job)]
    installed = _list_installed(crew.paths, slot.name)
    result = commands.run_command(
        gate.command,
        crew.paths.slot(slot.name),
        log,
        limit,
        crew.paths.root,
        config.environment,
        {
            **config.gate_variables,
            **gates.uncached_variables({**os.environ, **config.gate_variables}),
            "LIZA_BASE": job.base,
        },
        cancelled=cancelled,
        box=box,
        is_foreign=is_foreign,
    )
    is_killed = cancelled is not None and result.exit_status in commands.EXTERNAL_KILL_STATUSES
    servers.append(_find_servers(crew, job))
    findings: tuple[GateFinding, ...] = ()
    if not is_killed:
        found_servers = filter(None, dict.fromkeys(servers))
        findings = (*packages, *_check_checkout(crew, job, slot), *check_files(crew, slot), *found_servers)
        if result.passed:
            findings += _check_that_tests_ran(crew, job, gate, log)
        _check_installed(crew, slot.name, installed)
    where = _display_path(crew.paths, log)
    reds = [finding.text for finding in findings if finding.kind is GateFindingKind.RED]
    if result.passed:
        if reds:
            failure = history_events.format_failure(f"{gate.command}: {'; '.join(reds)}", where, result.tail(12))
        outcome = GateOutcome.RED if reds else GateOutcome.GREEN
        if not reds:
            # The next gate in this slot keeps what the set-up left.
            slot_setup.mark_tests_passed(crew.worktrees.slot_git(slot.name))
        timing = GateTiming(gate.name, outcome, result.seconds, failure, findings=findings)
        return replace(timing, command=gate.command, log=_digest_log(log))
    is_late = result.exit_status is None
    why = "did not end in time" if is_late else f"exit {result.exit_status}"
    script = result.find_crlf_script()
    crlf = () if script is None else (output_causes.describe_crlf(script),)
    summary = "; ".join((f"{gate.command}: {why} on the merge with {job.branch}", *crlf, *reds))
    failure = history_events.format_failure(summary, where, result.tail(12))
    outcome = GateOutcome.TIMEOUT if is_late else GateOutcome.RED
    timing = GateTiming(gate.name, outcome, result.seconds, failure, is_killed, findings)
    return replace(timing, command=gate.command, log=_digest_log(log))


def _digest_log(log: Path) -> str:
    """Return the SHA-256 of a log, which the next run replaces; empty if it cannot be read."""
    with suppress(NotRegularFile, OSError):
        return untrusted_files.digest(log)
    return ""


def _open_box(crew: Crew, slot: str, network: Network | None = None) -> CommandBox | None:
    """Return the box of commands in a slot. ``network``: of the gate; None: as all commands."""
    box = commands.open_box(crew.paths, crew.worktrees.slot_git(slot), _read_config(crew, slot))
    return box if box is None or network is None else box.with_network(network)


def _read_config(crew: Crew, slot: str) -> Config:
    """Return the configuration for what runs in a slot."""
    config = crew.board.read().config
    return foreign_runs.restrict(config) if slot == FOREIGN_SLOT else config


def _check_checkout(crew: Crew, job: GateJob, slot: PreparedMergeSlot) -> tuple[GateFinding, ...]:
    absent = slot.files.absent
    if not absent:
        return ()
    git = crew.worktrees.slot_git(slot.name)
    return tree_changes.judge_checkout(
        local_files.list_included(git),
        absent,
        git_refs.list_changed_paths(git, job.base, job.commit),
        is_allowed=crew.board.read().config.checkout != FULL_CHECKOUT,
    )


def _check_that_tests_ran(crew: Crew, job: GateJob, gate: Gate, log: Path) -> tuple[GateFinding, ...]:
    """Return a red finding if the tests of the candidate are none, though those of the proof ran and failed."""
    config = crew.board.read().config
    is_proved = gate.name == TESTS_GATE and config.proof.outcome == ProofVerdict.PROVED
    if not is_proved or command_parts.ran_tests(log_file.read_tail(log)) is not False:
        return ()

    commands_run = (gate.command, config.sandbox_setup or "")
    texts = (*commands_run, *proof.read_definitions(crew.git, job.commit, commands_run).values())
    if command_parts.examines_changes(texts) or "LIZA_BASE" in "".join(texts):
        return ()  # a candidate without sources has no test then
    return (GateFinding(GateFindingKind.RED, "the command runs no test"),)


def _list_installed(paths: Paths, slot: str) -> dict[Path, str]:
    """Return digests of the packages in the environments of a slot."""
    directory = paths.slot(slot)
    return {
        path.parent: package_records.packages_digest(installed_packages.list_packages(str(path.parent)))
        for path in directory.glob("*/pyvenv.cfg")
    }


def _check_installed(crew: Crew, slot: str, before: dict[Path, str]) -> None:
    """Make the set-up due if the tests installed packages: the next candidate must not find them."""
    if _list_installed(crew.paths, slot) != before:
        slot_setup.clear_setup_mark(crew.worktrees.slot_git(slot))


def _find_servers(crew: Crew, job: GateJob) -> GateFinding | None:
    """Return the finding that a server of another checkout listens, which the gates may test instead."""
    names = [slot.name for slot in job.slots]
    git, config = crew.worktrees.slot_git(names[0]), _read_config(crew, names[0])
    network = config.network if names[0] == FOREIGN_SLOT else None
    texts = [gate.command for gate in job.gates if not commands.is_isolated(config, network or gate.network)]
    return listeners.find_servers(crew, git, names, texts) if texts else None


def check_files(crew: Crew, slot: PreparedMergeSlot) -> tuple[GateFinding, ...]:
    """Return what follows from the tracked files that changed since the slot was prepared, and put back those that the
    tests may change. Raises GitFailed, OSError."""
    config = crew.board.read().config
    git = crew.worktrees.slot_git(slot.name)
    changes = tree_snapshot.find_changes(git, slot.files)
    findings = tree_changes.judge_changes(changes, config.tests_write, config.proof.writes)
    if findings and all(finding.kind is not GateFindingKind.RED for finding in findings):
        # Without this, the next reset of the slot would save these files as work of its owner.
        tree_snapshot.restore_files(git, slot.files, changes)
    return findings


def check_packages(
    crew: Crew, slot: str, on_set_up: Callable[[GateTiming], None]
) -> tuple[tuple[GateFinding, ...], str | None]:
    """Return what follows from installed files that differ from the records of their packages.

    Such a file in the slot may be what an earlier run left: the set-up then runs again, in a slot without untracked
    files. The second value is the message if that fails. Raises GitFailed, OSError.
    """
    config, git = crew.board.read().config, crew.worktrees.slot_git(slot)
    files = installed_packages.find_changed_files(git, config.environment)
    refused = package_records.select_refused(files, config.installed_changes)
    if any(not file.package.is_shared for file in refused):
        slot_setup.remove_untracked(git, ())
        failure = set_up_slot(crew, slot, on_set_up)
        if failure is not None:
            return (), failure
        files = installed_packages.find_changed_files(git, config.environment)
    return package_records.judge_packages(files, config.installed_changes), None


def _file_name(name: str) -> str:
    """Return ``name``, which may contain the name of a branch, as part of a file name."""
    return name.replace("/", "-")


def _display_path(paths: Paths, log: Path) -> str:
    return str(log.relative_to(paths.root))


def set_up_slot(crew: Crew, slot: str, on_set_up: Callable[[GateTiming], None], *, is_own: bool = False) -> str | None:
    """Copy files into a slot and run the set-up command if it is due. Return the failure message, or None.

    ``is_own``: no stranger wrote what is checked out, also in the slot for what strangers wrote.
    """
    config = _read_config(crew, slot)
    path, slot_git = crew.paths.slot(slot), crew.worktrees.slot_git(slot)
    if not slot_setup.bring(crew.paths.root, slot_git, config) or not config.sandbox_setup:
        return None
    slot_setup.begin_setup(slot_git)
    commands.begin_set_up(crew.paths, slot_git, config)
    log = crew.paths.logs / f"setup-{slot}.log"
    on_set_up(GateTiming(gates.SET_UP_RUN, GateOutcome.RUNNING, 0.0))
    result = commands.run_command(
        config.sandbox_setup,
        path,
        log,
        config.integration_timeout,
        crew.paths.root,
        config.environment,
        box=_open_box(crew, slot, crew.board.read().config.network if is_own else None),
        is_foreign=slot == FOREIGN_SLOT and not is_own,
    )
    outcome = GateOutcome.GREEN if result.passed else GateOutcome.RED if result.exit_status else GateOutcome.TIMEOUT
    on_set_up(GateTiming(gates.SET_UP_RUN, outcome, result.seconds))
    if not result.passed:
        script = result.find_crlf_script()
        why = f"exit {result.exit_status}" if script is None else output_causes.describe_crlf(script)
        summary = f"set-up failed: {config.sandbox_setup}: {why}"
        return history_events.format_failure(summary, _display_path(crew.paths, log), result.tail(12))
    commands.end_set_up(crew.paths, slot_git, config)
    slot_setup.mark_setup_done(crew.paths.root, slot_git, config)
    return None
