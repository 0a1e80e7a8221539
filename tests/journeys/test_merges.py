"""What stands in the way of a merge, and how it is mended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from liza.model.model import State, Status
from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import APPROVE, BIN, WORK, Crew, processes_of, started

MENDS = """\
if grep -q "MERGE FAILED" "$NOTES/brief"; then
    git merge -q --no-edit integration || true
    { git show integration:shared.txt; echo "$LIZA_TASK"; } > shared.txt
else
    echo "$LIZA_TASK" > shared.txt
    echo "$$" > "$NOTES/at-work"
    read line < "$NOTES/gate"
fi
git add -A
git commit -q -m "$LIZA_RUN"
liza submit
"""


@pytest.mark.campaign
def test_a_conflicting_merge_returns_to_its_coder_for_fixing(crew: Crew) -> None:
    crew.add("task-1", "task-2")
    crew.gate("gate")
    coder = crew.agent("coder-1", crew.script("coder", 'liza ready > "$NOTES/brief"\n' + MENDS, ready=False))
    crew.wait_note("at-work")
    crew.liza("claim", "task-2", "--agent", "coder-2")
    there = worktree_of(crew.root, "task-2")
    commit_all(there, "by hand", {"shared.txt": "task-2\n"})
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "fine", "--task", "task-2")
    crew.wait_status("task-2", "MERGED")
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE, ready=False))
    crew.open_gate("gate")

    task = crew.wait_status("task-1", "MERGED")
    assert "merge failed" in [event.event for event in task.history]
    failure = next(event for event in task.history if event.event == "merge failed")
    assert "conflict with integration in shared.txt" in (failure.detail or "")
    assert (task.assigned_to, task.run, task.iteration) == ("coder-1", "coder-1.2", 2)
    assert crew.git("show", "integration:shared.txt") == "task-2\ntask-1"
    assert (
        "task-1 to fix after a failed merge: conflict"
        in coder.said() + (crew.notes / "code-reviewer-1.1.log").read_text()
    )


@pytest.mark.campaign
def test_an_idle_coder_resolves_the_conflict_of_a_busy_one(crew: Crew) -> None:
    writes = (
        'case "$LIZA_TASK" in busy) echo > "$NOTES/at-work"; cat "$NOTES/gate";; esac\n'
        "git merge -q integration || git checkout --theirs . 2>/dev/null\n"
        'case "$LIZA_TASK" in task-1) echo "$LIZA_RUN" >> shared.txt;; esac\n'
    )
    crew.add("task-1", "busy")
    crew.gate("gate")
    program = crew.script("coder", writes + WORK)
    crew.agent("coder-1", program)
    crew.wait_note("at-work")
    crew.add("task-2")
    crew.liza("claim", "task-2", "--agent", "coder-7")
    path = worktree_of(crew.root, "task-2")
    commit_all(path, "by hand", {"shared.txt": "task-2\n"})
    crew.liza("submit", cwd=path)
    crew.liza("verdict", "approve", "fine", "--task", "task-2")
    crew.wait_status("task-2", "MERGED")
    crew.liza("verdict", "approve", "fine", "--task", "task-1")
    crew.wait_status("task-1", "INTEGRATION_FAILED")

    crew.agent("coder-2", program)
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.assigned_to, task.iteration, crew.status("busy")) == ("coder-2", 2, "CLAIMED")
    crew.liza("verdict", "approve", "fine", "--task", "task-1")
    crew.wait_status("task-1", "MERGED")
    assert crew.git("show", "integration:shared.txt").split() == ["task-2", "coder-2.1"]
    crew.open_gate("gate")
    crew.wait_status("busy", "READY_FOR_REVIEW")


@pytest.mark.campaign
def test_tests_that_kill_their_merger_fail_only_their_task(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.write_text(
        "[ -f task-1.txt ] || exit 0\n"
        "git update-ref refs/heads/integration HEAD\n"
        'kill -9 $(cut -d" " -f1 "$LIZA_ROOT/.liza/merge.lock")\n'
    )
    with started(tmp_path, integration_command=f"sh {tests}", poll_interval=1) as crew:
        crew.add("task-1", "task-2")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            code-reviewer-*) {APPROVE.strip()}; exit 0 ;;
            esac
            if liza ready | grep -q "MERGE FAILED"; then liza block "the tests end the merger" --ask "why?"; exit 0; fi
            echo x > "$LIZA_TASK.txt"
            git add -A
            git commit -q -m work
            liza submit
            """,
            ready=False,
        )
        start = crew.git("rev-parse", "integration")
        for agent in ("coder-1", "code-reviewer-1"):
            crew.agent(agent, program)
        task = crew.wait_status("task-1", "BLOCKED")
        crew.wait_status("task-2", "MERGED")
        failure = next(event.detail or "" for event in task.history if event.event == "merge failed")
        assert "its merger died before the tests" in failure
        assert f"it was put back to {start[:10]}" in failure
        assert crew.git("ls-tree", "--name-only", "integration").split() == ["README.md", "task-2.txt"]
        assert crew.paths.alerts.read_text().count("untested_integration") == 3
        assert crew.paths.alerts.read_text().count("merge_set_aside  task-1 ") == 1


@pytest.mark.campaign
def test_a_crew_outlasts_a_service_that_its_tests_need(tmp_path: Path) -> None:
    service = tmp_path / "service"
    command = f'[ -f "{service}" ] || {{ echo "connection refused"; exit 1; }}'
    with started(tmp_path, integration_command=command) as crew:
        crew.add("task-1", "task-2", "task-3")
        crew.agent("coder-1", crew.script("coder", WORK))
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))

        def is_waiting(state: State) -> bool:
            is_paused = any(task.set_aside is not None for task in state.tasks)
            return is_paused and all(task.status is Status.APPROVED for task in state.tasks)

        state = crew.wait(is_waiting, "three tasks that wait for the service")
        blames = [event for task in state.tasks for event in task.history if event.event == "merge failed"]
        claims = [event for task in state.tasks for event in task.history if event.event == "claim"]
        assert len(blames) == 1
        assert len(claims) <= 4, "the blamed task has a second session at most"
        status = crew.json("status")
        assert (status["signals"], state.circuit_breaker.history) == ([], ())
        alarm = next(alarm for alarm in status["waiting"] if alarm["kind"] == "merge_set_aside")
        assert "integration is red without any task (tests): " in alarm["message"]
        assert "connection refused" in alarm["message"]
        assert alarm["next"].startswith("liza merge task-")
        service.touch()
        crew.wait(lambda state: all(task.status is Status.MERGED for task in state.tasks), "all three are merged")


@pytest.mark.campaign
def test_a_dirty_file_blocks_only_the_merge_that_needs_it(tmp_path: Path) -> None:
    with started(tmp_path, poll_interval=1) as crew:
        crew.git("switch", "-q", "integration")
        (crew.root / "README.md").write_text("mine, not committed\n")
        crew.add("task-1", "task-2")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            code-reviewer-*) {APPROVE.strip()}; exit 0 ;;
            esac
            if [ "$LIZA_TASK" = task-1 ]; then echo "changed by task-1" >> README.md; else echo x > task-2.txt; fi
            git add -A
            git commit -q -m work
            liza submit
            """,
            ready=False,
        )
        crew.agent("coder-1", program)
        crew.agent("code-reviewer-1", program)
        crew.wait_status("task-2", "MERGED")
        state = crew.wait(lambda state: state.tasks[0].merging and state.tasks[0].merging.waiting, "task-1 waiting")
        waiting = state.tasks[0]
        assert (waiting.status, waiting.merging.waiting) == ("APPROVED", ("README.md",))  # type: ignore[union-attr]
        assert (crew.root / "README.md").read_text() == "mine, not committed\n"
        assert (crew.root / "task-2.txt").read_text() == "x\n"

        crew.git("checkout", "-q", "README.md")
        crew.wait_status("task-1", "MERGED")
        assert (crew.root / "README.md").read_text().endswith("changed by task-1\n")
        assert crew.git("status", "--porcelain") == ""
        assert crew.git("symbolic-ref", "--short", "HEAD") == "integration"


def test_red_tests_return_a_task_and_slots_are_set_up(tmp_path: Path) -> None:
    with started(
        tmp_path,
        integration_command="test -f .env && test -f installed && ! grep -q BAD task-1.txt",
        sandbox_setup=f'echo "$PWD" >> "{tmp_path}/notes/set-ups"; cp .env installed',
        sandbox_copy=[".env"],
    ) as crew:
        exclude = crew.root / ".git" / "info" / "exclude"
        exclude.write_text(exclude.read_text() + ".env\ninstalled\n")
        (crew.root / ".env").write_text("KEY=1\n")
        crew.add("task-1")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            code-reviewer-*) test -f installed; {APPROVE.strip()} ;;
            *)
                cat .env installed > "$NOTES/saw-$LIZA_RUN"
                if liza ready | grep -q "MERGE FAILED"; then echo GOOD > task-1.txt; else echo BAD > task-1.txt; fi
                git add -A
                git commit -q -m "$LIZA_RUN"
                liza submit ;;
            esac
            """,
            ready=False,
        )
        crew.agent("coder-1", program)
        crew.agent("code-reviewer-1", program)
        task = crew.wait_status("task-1", "MERGED")
        failure = next(event for event in task.history if event.event == "merge failed")
        assert "exit 1 on the merge with integration" in (failure.detail or "")
        assert (task.tested, task.run) == (True, "coder-1.2")
        assert (crew.notes / "saw-coder-1.1").read_text() == "KEY=1\nKEY=1\n"
        places = (crew.notes / "set-ups").read_text().split()
        # The red candidate's files were removed from the merger's slot, so its set-up ran again before the retry, and
        # for the next candidate.
        set_up = ("s1", "code-reviewer-1", "merge", "merge", "merge")
        assert sorted(places) == sorted(str(crew.paths.slot(slot)) for slot in set_up)
        assert crew.git("ls-tree", "-r", "--name-only", "integration").split() == ["README.md", "task-1.txt"]


@pytest.mark.campaign
def test_tests_of_a_stopped_crew_end_and_are_repeated(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with started(tmp_path, integration_command=f'echo "$$" > "{notes}/testing"; read line < "{notes}/gate"') as crew:
        crew.gate("gate")
        crew.liza("submit", cwd=crew.work_by_hand("task-1"))
        crew.liza("verdict", "approve", "fine", "--task", "task-1")
        program = crew.script("reviewer", APPROVE)
        supervisor = crew.agent("code-reviewer-1", program)
        tests = int(crew.wait_note("testing"))
        assert supervisor.stop() == 0
        crew.wait(lambda _: not Path(f"/proc/{tests}").exists(), "the end of the tests")
        assert crew.living() == []
        stopped = crew.task("task-1")
        assert (stopped.status, stopped.merging, stopped.set_aside) == ("APPROVED", None, None)

        crew.agent("code-reviewer-1", program)
        crew.wait(lambda _: (crew.notes / "testing").read_text() != f"{tests}\n", "tests again")
        crew.open_gate("gate")
        assert crew.wait_status("task-1", "MERGED").tested is True


def test_tests_of_a_killed_merger_end_before_the_next_merge(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with started(tmp_path, integration_command=f'echo "$$" > "{notes}/testing"; read line < "{notes}/gate"') as crew:
        crew.gate("gate")
        crew.liza("submit", cwd=crew.work_by_hand("task-1"))
        crew.liza("verdict", "approve", "fine", "--task", "task-1")
        merger = subprocess.Popen(
            [BIN / "liza", "merge"], cwd=crew.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        tests = int(crew.wait_note("testing"))
        merger.kill()
        merger.wait()
        # The guard of the command ends it as soon as the merger is gone, or the next merger waits for that.
        again = subprocess.Popen(
            [BIN / "liza", "merge"], cwd=crew.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        crew.wait(lambda _: (crew.notes / "testing").read_text() != f"{tests}\n", "tests again")
        assert tests not in [pid for pid, _ in processes_of(crew.root)]
        crew.open_gate("gate")
        assert again.wait() == 0
        assert crew.task("task-1").status == "MERGED"
