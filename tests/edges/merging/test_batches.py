"""Batches of approved tasks: one test run for all, the red one found, conflicts, gates side by side, flaky gates."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liza.cli import entry_points
from liza.merging import gate_log
from liza.merging import queue as queue_verbs
from liza.merging.merge import merge
from liza.merging.merge_recovery import recover_if_dead
from liza.model.configuration import Gate, QueueSettings
from liza.model.errors import LizaError, Refused
from liza.model.gates import GateOutcome, GateRun
from liza.recovery.recover import recover_crew
from liza.tasks.task import drop
from tests.campaign import forks
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges


def bad(there: Path) -> None:
    """What a task does whose tests fail."""
    commit_all(there, "bad", {f"bad-{there.name}.txt": "BAD\n"})


def writes_readme(text: str) -> object:
    def work(there: Path) -> None:
        (there / "README.md").write_text(f"{text}\n")
        git(there, "commit", "-q", "-am", text)

    return work


def runs(crew: Merges, gate: str = "tests") -> list[GateOutcome]:
    """The outcomes of the runs of a gate that have ended."""
    recorded = gate_log.read_runs(crew.crew.paths)
    return [run.outcome for run in recorded if run.gate == gate and run.outcome is not GateOutcome.RUNNING]


def subjects(crew: Merges) -> list[str]:
    return git(crew.root, "log", "--first-parent", "--reverse", "--format=%s", "main..integration").splitlines()


def positions(crew: Merges) -> list[str]:
    """The commits that integration ever pointed at, oldest first."""
    return git(crew.root, "log", "--walk-reflogs", "--format=%H", "integration").splitlines()[::-1]


@pytest.mark.sample(1)
@pytest.mark.parametrize("deed", ["hold", "drop"])
def test_tasks_of_a_killed_merger_can_be_held_or_dropped(crew: Merges, deed: str) -> None:
    crew.approved("a")
    code = forks.run(lambda: merge(crew.crew), "merge.begun#1", quiet=crew.check.parent / "quiet")
    assert (code, crew.task("a").merging is not None) == (-signal.SIGKILL, True)
    if deed == "hold":
        queue_verbs.hold(crew.crew, "a", "later")
        assert "a is held: later" in crew.merge("a")
        with pytest.raises(Refused, match="a is held"):
            queue_verbs.retry(crew.crew, "a")
    else:
        drop(crew.crew, "a", "not wanted", None, recover_if_dead)
        assert crew.status("a") == "ABANDONED"
    assert crew.task("a").merging is None


def test_five_approved_tasks_need_one_test_run_and_move(crew: Merges) -> None:
    names = [f"t{number}" for number in range(5)]
    crew.approved(*names)
    before = crew.tip()
    result = merge(crew.crew)
    assert [crew.status(name) for name in names] == ["MERGED"] * 5
    assert runs(crew) == [GateOutcome.GREEN]
    assert [subject.partition(":")[0] for subject in subjects(crew)] == [f"Merge {name}" for name in names]
    assert positions(crew)[-2:] == [before, crew.tip()]
    commits = git(crew.root, "rev-list", "--first-parent", "--reverse", f"{before}..integration").split()
    assert [crew.task(name).merge_commit for name in names] == commits
    assert all(crew.task(name).tested for name in names)
    assert result.details["merged"] == names
    refs = git(crew.root, "for-each-ref", "--format=%(refname)", "refs/liza/candidates", "refs/liza/tested")
    assert refs == ""
    assert "liza" not in git(crew.root, "status", "--porcelain")


def test_the_red_task_of_a_batch_returns_with_its_output(crew: Merges) -> None:
    crew.tests("if grep -qs BAD *.txt; then echo it is BAD; exit 1; fi")
    crew.approved("a", "b")
    crew.approved("c", work=bad)
    crew.approved("d")
    crew.merge()
    assert [crew.status(name) for name in "abcd"] == ["MERGED", "MERGED", "INTEGRATION_FAILED", "APPROVED"]
    assert "exit 1 on the merge with integration" in crew.failure("c")
    assert "it is BAD" in crew.failure("c")
    assert crew.task("d").merging is None
    # All four, the first two, the first three, and the first three again before c is blamed.
    assert runs(crew) == [GateOutcome.RED, GateOutcome.GREEN, GateOutcome.RED, GateOutcome.RED]
    assert crew.merge() == ""
    assert crew.status("d") == "MERGED"


def test_only_a_conflict_with_integration_returns_tasks_to_their_coder(
    crew: Merges,
) -> None:
    crew.approved("a", work=writes_readme("by a"))  # type: ignore[arg-type]
    crew.approved("b", work=writes_readme("by b"))  # type: ignore[arg-type]
    crew.approved("c")
    assert crew.merge() == ""
    assert [crew.status(name) for name in "abc"] == ["MERGED", "APPROVED", "MERGED"]
    assert crew.task("b").set_aside is None
    crew.merge()
    assert crew.status("b") == "INTEGRATION_FAILED"
    first, *hunks = crew.failure("b").splitlines()
    assert first == "conflict with integration in README.md"
    assert {"--- README.md", "by a", "by b"} <= set(hunks)


@pytest.mark.campaign
def test_a_gate_that_passes_on_repeat_is_reported_as_flaky(crew: Merges, tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    crew.tests(f'if [ -e "{failing}" ]; then rm "{failing}"; exit 1; fi')
    failing.touch()
    crew.approved("a")
    assert crew.merge() == ""
    assert (crew.status("a"), runs(crew)) == ("MERGED", [GateOutcome.RED, GateOutcome.GREEN])
    assert "flaky_gate  tests failed and then passed" in crew.alerts()
    assert queue_verbs.show_queue(crew.crew).gates[0].flaky == 1
    crew.tests("exit 1")
    crew.approved("b")
    crew.merge()
    assert crew.status("b") == "INTEGRATION_FAILED"
    assert runs(crew)[2:] == [GateOutcome.RED] * 4


def gates(crew: Merges, **commands: str) -> None:
    config = crew.crew.board.read().config
    crew.configure(gates=tuple(Gate(name=name, command=command) for name, command in commands.items()))
    assert config.queue == QueueSettings()


@pytest.mark.campaign
def test_gates_run_at_the_same_time_in_separate_slots(crew: Merges, tmp_path: Path) -> None:
    """Each of two gates waits for the other, and one writes a file that the other one must not see."""
    first, second = tmp_path / "first", tmp_path / "second"
    where = f'pwd >> "{tmp_path}/where"'
    clean = "git diff --quiet && ! [ -e new.txt ]"
    crew.tests(f'{where}; touch new.txt; mkfifo "{first}"; read x < "{first}"')
    # The tests wait at the pipe: it is opened for writing only while they run.
    wait = f'until [ -p "{first}" ]; do :; done; echo x > "{first}"'
    gates(crew, lint=f'{where}; {wait}; {clean} && touch "{second}"', last=f"{where}; {clean}")
    crew.approved("a")
    assert crew.merge() == ""
    assert crew.status("a") == "MERGED"
    assert second.exists()
    places = [Path(line).name for line in (tmp_path / "where").read_text().split()]
    assert sorted(set(places)) == ["merge", "merge-2"]
    assert [runs(crew, gate) for gate in ("tests", "lint", "last")] == [[GateOutcome.GREEN]] * 3


@pytest.mark.campaign
def test_only_red_gates_are_repeated_and_each_is_reported(crew: Merges, tmp_path: Path) -> None:
    gates(crew, lint="echo not tidy; exit 3", types=f"echo x >> {tmp_path}/types")
    crew.approved("a")
    crew.merge()
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "echo not tidy; exit 3: exit 3 on the merge with integration (log: .liza/logs/merge-a-lint.log)" in (
        crew.failure("a")
    )
    assert runs(crew, "lint") == [GateOutcome.RED] * 2
    assert (tmp_path / "types").read_text() == "x\n"


@pytest.mark.campaign
def test_a_hanging_gate_is_ended_with_its_children_as_red(crew: Merges, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hang = f'(trap "" TERM; sleep 600) & echo $! >> "{pids}"; wait'
    crew.configure(gates=(Gate(name="hang", command=hang, timeout=1),), queue=QueueSettings(retries=0))
    crew.approved("a")
    crew.merge()
    assert crew.status("a") == "INTEGRATION_FAILED"
    assert "did not end in time" in crew.failure("a")
    assert runs(crew, "hang") == [GateOutcome.TIMEOUT]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGKILL, variant(signal.SIGTERM)])
def test_a_killed_mergers_gates_end_and_its_batch_is_merged(
    crew: Merges, tmp_path: Path, number: signal.Signals
) -> None:
    once = tmp_path / "once"
    merger = '$(cut -d" " -f1 "$LIZA_ROOT/.liza/merge.lock")'
    kill = f'[ -e "{once}" ] || {{ touch "{once}"; kill -{number.value} {merger}; sleep 600; }}'
    gates(crew, killer=kill, other="true")
    crew.approved("a", "b")
    assert forks.run(lambda: merge(crew.crew), quiet=crew.check.with_name("said")) != 0
    recover_crew(crew.crew, "doctor")
    stopped = number is signal.SIGTERM
    for name in "ab":
        task = crew.task(name)
        assert (task.status.value, task.merging) == ("APPROVED", None)
        assert (task.set_aside is None) == stopped
    assert crew.merge() == ""
    assert [crew.status(name) for name in "ab"] == (["MERGED"] * 2 if stopped else ["MERGED", "APPROVED"])
    assert crew.merge() == ("no approved task is ready to merge" if stopped else "")
    assert crew.status("b") == "MERGED"


@pytest.mark.campaign
def test_a_persons_files_block_only_the_task_that_changes_them(crew: Merges) -> None:
    crew.approved("a")
    crew.approved("b", work=writes_readme("by b"))  # type: ignore[arg-type]
    crew.approved("c")
    git(crew.root, "switch", "-q", "integration")
    (crew.root / "README.md").write_text("mine\n")
    assert crew.merge() == ""
    assert [crew.status(name) for name in "abc"] == ["MERGED", "APPROVED", "MERGED"]
    assert crew.merge() == ""
    assert crew.task("b").merging is not None
    assert crew.task("b").merging.waiting == ("README.md",)  # type: ignore[union-attr]
    assert (crew.root / "README.md").read_text() == "mine\n"


@pytest.mark.parametrize("forged", ["tip", variant("member")])
def test_a_batch_that_an_agent_wrote_is_never_published(crew: Merges, forged: str) -> None:
    crew.approved("a", "b")
    crew.tests(f'kill -9 $(cut -d" " -f1 "{crew.root}/.liza/merge.lock"); sleep 600')
    assert forks.run(lambda: merge(crew.crew), quiet=crew.check.with_name("said")) == -signal.SIGKILL
    crew.tests("exit 0")
    tip = crew.tip()
    with crew.crew.change("human:test", "edit") as tx:
        for name in "ab":
            task = tx.state.task(name)
            assert task is not None
            assert task.merging is not None
            evil = git(crew.root, "commit-tree", "-p", task.merging.candidate, "-m", "evil", f"{tip}^{{tree}}")
            merging = replace(task.merging, tested=True)
            if forged == "tip":
                merging = replace(merging, tip=evil)
            git(crew.root, "update-ref", f"refs/liza/tested/{name}", merging.tip or "")
            if forged == "tip" or name == "a":
                tx.state = tx.state.with_task(replace(task, merging=merging))
    recover_crew(crew.crew, "doctor")
    assert crew.tip() == tip
    assert [crew.task(name).merging for name in "ab"] == [None, None]
    assert [crew.status(name) for name in "ab"] == ["APPROVED", "APPROVED"]


@pytest.mark.campaign
def test_an_unreadable_gate_log_is_reported_and_stops_no_merge(crew: Merges) -> None:
    crew.approved("a")
    crew.crew.paths.gates.write_text("garbage\n")
    assert crew.merge() == ""
    assert crew.status("a") == "MERGED"
    assert "gate_log  retries and estimates do not know earlier runs" in crew.alerts()
    with pytest.raises(LizaError, match=r"gates\.jsonl:1 cannot be read"):
        queue_verbs.show_queue(crew.crew)


@pytest.mark.campaign
def test_a_torn_or_long_gate_log_is_repaired_by_merging(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_log, "REMAINING_LINES", 2)
    crew.approved("a", "b", "c")
    for name in "abc":
        assert crew.merge(name) == ""
    assert len(gate_log.read_runs(crew.crew.paths)) <= 4
    with crew.crew.paths.gates.open("a") as log:
        log.write('{"time": ')
    crew.approved("d")
    assert crew.merge() == ""
    assert gate_log.read_runs(crew.crew.paths)[-1].subject == "d"


@pytest.mark.campaign
def test_the_queue_shows_positions_batches_and_the_gate_that_runs(crew: Merges, tmp_path: Path) -> None:
    crew.approved("a", "b", "c")
    queue_verbs.hold(crew.crew, "b", "after the release")
    queue_verbs.move(crew.crew, "c", 1)
    shown = queue_verbs.show_queue(crew.crew)
    assert [(row.position, row.id, row.batch, row.why) for row in shown.queue] == [
        (1, "c", 1, None),
        (2, "a", 1, None),
        (3, "b", None, "held: after the release"),
    ]
    # The first batch changes only text: the gate for code is neither run for it nor counted.
    crew.configure(gates=(Gate(name="lint", command="true", paths=("*.py",)),), queue=QueueSettings(batch=1))
    green: dict[str, Any] = {"candidate": "x" * 40, "subject": "x", "tasks": 1, "outcome": GateOutcome.GREEN}
    times = {"tests": 10.0, "lint": 100.0}.items()
    now = crew.crew.clock.now()
    gate_log.append_runs(crew.crew.paths, [GateRun(time=now, gate=gate, seconds=time, **green) for gate, time in times])
    assert [row.estimate for row in queue_verbs.show_queue(crew.crew).queue] == [10.0, 20.0, None]
    crew.configure(gates=(), queue=QueueSettings())
    said = tmp_path / "said.json"
    crew.tests(f'cd "$HERE" && env -u LIZA_RUN {shutil.which("liza")} queue --json > {said}')
    assert crew.merge() == ""
    assert [crew.status(name) for name in "abc"] == ["MERGED", "APPROVED", "MERGED"]
    during = json.loads(said.read_text())
    (batch,) = during["batches"]
    assert (batch["tasks"], during["merging"]) == (["c", "a"], True)
    assert [(run["gate"], run["tasks"], run["outcome"]) for run in batch["runs"]] == [("tests", 2, "running")]
    assert "held" in crew.merge("b")
    queue_verbs.release(crew.crew, "b")
    assert crew.merge("b") == ""


@pytest.mark.campaign
def test_several_named_tasks_are_merged_except_failing_ones(
    crew: Merges, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crew.tests("[ ! -e b.txt ]")
    crew.approved("a", "b", "c")
    monkeypatch.chdir(crew.root)
    assert entry_points.run_command(["merge", "a", "b", "none", "c"]) == 1
    assert [crew.status(task) for task in "abc"] == ["MERGED", "INTEGRATION_FAILED", "MERGED"]
    shown = capsys.readouterr().out
    assert "not merged: b: it is to fix" in shown
    assert "not merged: none: there is no task 'none'" in shown
    assert "next: liza task show b" in shown
    assert entry_points.run_command(["merge", "a", "c", "--json"]) == 0


@pytest.mark.campaign
def test_a_batch_that_returns_a_task_exits_with_1(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.tests("[ ! -e b.txt ]")
    crew.approved("a", "b")
    monkeypatch.chdir(crew.root)
    assert entry_points.run_command(["merge"]) == 1
    assert [crew.status(task) for task in "ab"] == ["MERGED", "INTEGRATION_FAILED"]
