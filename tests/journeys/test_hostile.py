"""What agents, people and neighbours have tried against a crew, and what became of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.journeys.crews import APPROVE, BIN, WORK, started


def test_a_board_edited_to_say_approved_moves_integration_nowhere_and_is_told(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        there = crew.work_by_hand("task-1")
        crew.liza("submit", cwd=there)
        before = crew.git("rev-parse", "integration")
        forged = crew.paths.state.read_text().replace(
            "status: READY_FOR_REVIEW", 'status: APPROVED\n    approved_by: "code-reviewer-1"'
        )
        subprocess.run(
            ["flock", crew.paths.state_lock, "tee", crew.paths.state], input=forged, text=True, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert "has no verdict on" in crew.liza("merge", "task-1", code=1)
        assert crew.git("rev-parse", "integration") == before


def test_an_agent_that_deletes_its_worktree_is_a_crash_and_the_next_session_finds_it_laid_out_again(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            coder-1.1) there=$PWD; cd /; rm -rf "$there"; exit 1 ;;
            code-reviewer-*) {APPROVE.strip()} ;;
            *) {WORK} ;;
            esac
            """,
        )
        crew.agent("coder-1", program)
        crew.agent("code-reviewer-1", program)
        task = crew.wait_status("task-1", "MERGED")
        assert "crash" in [event.event for event in task.history]


def test_a_commit_that_is_not_on_the_tasks_branch_is_refused_with_the_way_back(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        there = crew.work_by_hand("task-1")
        crew.git("switch", "-q", "-c", "elsewhere", cwd=there)
        assert "git switch task/task-1" in crew.liza("submit", cwd=there, code=1)
        crew.git("checkout", "-q", "--detach", cwd=there)
        assert "HEAD is on no branch" in crew.liza("submit", cwd=there, code=1)
        crew.git("switch", "-q", "task/task-1", cwd=there)
        crew.liza("submit", cwd=there)


def test_an_up_that_is_killed_with_9_takes_its_supervisors_and_their_sessions_along(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        program = crew.script("agent", 'echo here > "$NOTES/here"; sleep 600\n')
        up = subprocess.Popen(
            [BIN / "liza", "up", "--planners", "0", "--program", program],
            cwd=crew.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        crew.wait_note("here")
        up.kill()
        up.wait()
        crew.wait(lambda _: not crew.living(), "the end of all that up had started")
        assert crew.task("task-1").handoff_pending


def test_what_is_no_text_is_refused_at_the_door_and_the_board_stays_as_it_was(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        before = crew.paths.state.read_bytes()
        for words in (
            ["note", b"caf\xe9"],
            ["task", "add", "--id", "a", "--desc", b"\xff", "--done", "w", "--scope", "s", "--spec", "x"],
        ):
            done = subprocess.run([BIN / "liza", *words], cwd=crew.root, capture_output=True, check=False)
            assert done.returncode == 2, done.stderr
        for text in (b"\xff\xfe\0", b"- {id: null}", b"- {id: a, description: [x]}", b"- {id: a, priority: -1}"):
            done = subprocess.run(
                [BIN / "liza", "task", "add", "--file", "-"],
                cwd=crew.root,
                input=text,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 2, done.stderr
        assert crew.paths.state.read_bytes() == before


def test_an_edit_from_outside_that_overwrote_something_stands_in_status_and_in_the_log_of_alerts(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        old = crew.paths.state.read_bytes()
        crew.liza("task", "edit", "task-1", "--desc", "another text")
        crew.paths.state.write_bytes(old)
        crew.add("task-2")
        assert crew.task("task-2").status == "UNCLAIMED"
        assert "overwrote revision" in str(crew.json("status")["alerts"])
        assert "overwrote revision" in crew.paths.alerts.read_text()
