"""What agents, people and neighbours have tried against a crew, and what became of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.campaign.consistency import problems
from tests.conftest import commit_all
from tests.journeys.crews import APPROVE, BIN, WORK, started


def test_a_board_edited_to_approved_moves_integration_nowhere(tmp_path: Path) -> None:
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


def test_an_agent_that_deletes_its_worktree_counts_as_a_crash(
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


def test_a_commit_outside_the_tasks_branch_is_refused_with_remedy(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        there = crew.work_by_hand("task-1")
        crew.git("switch", "-q", "-c", "elsewhere", cwd=there)
        assert "git switch task/task-1" in crew.liza("submit", cwd=there, code=1)
        crew.git("checkout", "-q", "--detach", cwd=there)
        assert "HEAD is on no branch" in crew.liza("submit", cwd=there, code=1)
        crew.git("switch", "-q", "task/task-1", cwd=there)
        crew.liza("submit", cwd=there)


def test_input_that_is_no_text_is_refused_without_a_change(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        before = crew.paths.state.read_bytes()
        for words in (
            ["note", b"caf\xe9"],
            ["task", "add", "--id", "a", "--desc", b"\xff", "--done", "w", "--scope", "s", "--spec", "x"],
        ):
            done = subprocess.run([BIN / "liza", *words], cwd=crew.root, capture_output=True, check=False)
            assert done.returncode == 2, done.stderr
        for text in (b"\xff\xfe\0", b"- {id: null}", b"- {id: a, priority: -1}"):
            done = subprocess.run(
                [BIN / "liza", "task", "add", "--file", "-"],
                cwd=crew.root,
                input=text,
                capture_output=True,
                check=False,
            )
            assert done.returncode == 2, done.stderr
        assert crew.paths.state.read_bytes() == before


def test_an_outside_edit_that_overwrote_something_is_an_alarm(
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


@pytest.mark.campaign
def test_deleted_git_records_of_a_worktree_are_repaired(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            coder-1.1) echo kept > kept.txt; rm -rf "$LIZA_ROOT/.git/worktrees/s1"; exit 1 ;;
            coder-1.2) echo garbage > "$LIZA_ROOT/.git/worktrees/s1/liza"; exit 1 ;;
            code-reviewer-*) {APPROVE.strip()} ;;
            *) {WORK} ;;
            esac
            """,
        )
        crew.agent("coder-1", program)
        crew.agent("code-reviewer-1", program)
        crew.wait_status("task-1", "MERGED")
        assert crew.git("show", "integration:kept.txt") == "kept"


def test_session_has_no_secrets_of_the_person_and_private_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        name: f"the-{name.lower()}-of-the-person"
        for name in (
            "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "OPENAI_API_KEY", "NPM_TOKEN", "DATABASE_URL",
            "GPG_AGENT_INFO", "KUBECONFIG", "LIZA_FAULT_TRACE", "LIZA_WHATEVER", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT",
            "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV",
        )
    }  # fmt: skip
    with started(tmp_path) as crew:
        crew.add("task-1")
        program = crew.script("agent", f'env > "$NOTES/env"\nid >> "$NOTES/env"\n{WORK}\n', ready=False)
        for name, value in secrets.items():
            if name not in ("LIZA_FAULT_TRACE", "LD_PRELOAD", "PYTHONPATH", "BASH_ENV", "GIT_CONFIG_COUNT"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("LIZA_FAULT", "no.such.point")
        monkeypatch.setenv("LIZA_FAULT_TRACE", str(tmp_path / "trace"))
        crew.agent("coder-1", program)
        crew.wait_status("task-1", "READY_FOR_REVIEW")
        told = crew.wait_note("env")
        names = {line.partition("=")[0] for line in told.splitlines()}
        assert "LIZA_RUN" in names
        assert not {*secrets, "LIZA_FAULT"} & names
        assert "of-the-person" not in told
        launch = (crew.paths.run("coder-1.1") / "launch.json").read_text()
        assert "of-the-person" not in launch
        assert (crew.paths.liza.stat().st_mode & 0o022, crew.paths.runs.stat().st_mode & 0o777) == (0, 0o700)
        open_to_others = [path for path in crew.paths.runs.rglob("*") if path.lstat().st_mode & 0o077]
        assert open_to_others == []


def test_secrets_of_agents_are_redacted_and_persons_text_is_kept(
    tmp_path: Path,
) -> None:
    token, mine = "ghp_" + "0aB1cD2eF3" * 4, "glpat-" + "0aB1cD2eF3" * 2
    with started(tmp_path) as crew:
        crew.add("task-1", description=f"Use {mine} for {{}}")
        program = crew.script(
            "agent",
            f"""\
            echo "the log says {token}"
            printf '\\033]52;c;ZXZpbA==\\007\\033[2J\\033[8mhidden\\033[0m\\342\\200\\256\\n'
            liza report workaround "used {token}" --detail workaround="PASSWORD=hunter2x9"
            liza block "the server wants {token}" --ask "may I use password=hunter2x9 there?"
            """,
        )
        crew.agent("coder-1", program)
        crew.wait_status("task-1", "BLOCKED")
        crew.wait(lambda _: crew.paths.alerts.exists() and "blocked" in crew.paths.alerts.read_text(), "the alert")
        crew.liza("down")
        shown = crew.liza("logs", "coder-1")
        history = crew.git("log", "-p", "refs/liza/blackboard")
        run = crew.paths.run("coder-1.1")
        said = {
            "board": crew.paths.state.read_text(),
            "journal": crew.paths.journal.read_text(),
            "history": history,
            "alerts": crew.paths.alerts.read_text(),
            "logs": shown,
            "status": crew.liza("status"),
            "task": crew.liza("task", "show", "task-1"),
        }
        for name, text in said.items():
            assert token not in text, name
            assert "hunter2x9" not in text, name
        assert "[redacted: GitHub token]" in said["board"]
        assert mine in said["board"]
        assert mine not in (run / "assignment.md").read_text() + (run / "block.md").read_text()
        assert token in (run / "output.log").read_text()
        assert not {"\x1b", "\x07", "\u202e"} & set("".join(said.values()))


def test_endless_output_fills_no_disk_and_its_end_is_readable(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        crew.gate("go")
        program = crew.script(
            "agent",
            """\
            yes "a line that says nothing at all, again and again" | head -c 70000000
            echo "the last word"
            read line < "$NOTES/go"
            """,
        )
        crew.agent("coder-1", program)
        log = crew.paths.run("coder-1.1") / "output.log"
        crew.wait(lambda _: log.exists() and "last word" in crew.liza("logs", "coder-1"), "the last word")
        crew.wait(lambda _: log.open("rb").read(27) == b"[liza: this log was cut at ", "the cut")
        assert log.stat().st_size < 64 << 20


@pytest.mark.campaign
def test_integration_moved_by_agent_is_one_alarm_and_work_continues(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        program = crew.script(
            "agent",
            f"""\
            case "$LIZA_RUN" in
            coder-1.1)
                tree=$(git rev-parse 'integration^{{tree}}')
                forged=$(git commit-tree "$tree" -p integration -m "never reviewed")
                git update-ref refs/heads/integration "$forged"
                {WORK} ;;
            *) {APPROVE.strip()} ;;
            esac
            """,
        )
        crew.agent("coder-1", program)
        crew.wait_status("task-1", "READY_FOR_REVIEW")
        crew.wait(
            lambda _: crew.paths.alerts.exists() and "never reviewed" in crew.paths.alerts.read_text(), "the alert"
        )
        assert "never reviewed" in str(crew.json("status")["alerts"])
        crew.agent("code-reviewer-1", program)
        crew.wait_status("task-1", "MERGED")
        crew.wait(lambda _: "onto commits without a verdict" in crew.paths.alerts.read_text(), "what the merge said")
        told = crew.paths.alerts.read_text()
        assert told.count("was moved outside of liza") == 1
        crew.liza("sync", "integration")
        assert "moved outside" not in str(crew.json("status")["alerts"])


def test_a_persons_commit_on_integration_is_an_alarm_until_accepted(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        there = tmp_path / "mine"
        crew.git("worktree", "add", "-q", str(there), "integration")
        commit_all(there, "by hand", {"mine.txt": "mine\n"})
        supervisor = crew.agent("coder-1", crew.script("agent", "exit 0\n"))
        supervisor.wait_said("moved outside of liza.*by hand")
        crew.liza("sync", "main")
        crew.wait(lambda _: "moved outside" not in str(crew.json("status")["alerts"]), "the end of the alarm")


def test_doctor_repairs_a_deleted_slot_with_a_nonsense_owner(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.work_by_hand("task-1")
        crew.liza("task", "release", "task-1")
        shutil.rmtree(crew.paths.slot("s1"))
        owner = crew.root / ".git" / "worktrees" / "s1" / "liza"
        owner.write_text('{"task": 7}')
        assert "s1" in crew.run("doctor", "--fix").stdout
        assert not owner.exists() or "task-1" in owner.read_text()
        assert problems(crew.root) == []
        crew.work_by_hand("task-2")
