"""`liza run`: a program that a person starts has its brief in its file before it runs, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import worktree_of
from tests.journeys.crews import BIN, Crew, started
from tests.journeys.test_up_and_down import Terminal

ROW = """\
[programs.tidy]
command = "{command}"
instructions = ["AGENTS.md"]

[programs.tidy.headless]
prompt = "none"
"""
LOOKS = """\
#!/bin/sh
cp AGENTS.md "{notes}/brief"
git status --short > "{notes}/status"
env > "{notes}/env"
echo "$@" > "{notes}/args"
cat > "{notes}/input"
{act}
"""


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with started(tmp_path) as crew:
        crew.add("t1")
        yield crew


def program(crew: Crew, act: str = "true") -> None:
    """Add the program `tidy` to the crew's own table; it copies what it sees, then does ``act``."""
    path = crew.notes / "tidy"
    path.write_text(LOOKS.format(notes=crew.notes, act=act))
    path.chmod(0o755)
    (crew.root / ".liza" / "programs.toml").write_text(ROW.format(command=path))


def seen(crew: Crew, name: str) -> str:
    return (crew.notes / name).read_text()


def files(crew: Crew) -> dict[str, bytes]:
    """Every file of the person's checkout, and what hides files from git."""
    info = crew.root / ".git" / "info"
    paths = [path for path in crew.root.iterdir() if path.is_file()]
    return {str(path): path.read_bytes() for path in (*paths, info / "exclude", info / "attributes") if path.exists()}


@pytest.mark.sample(1)
@pytest.mark.parametrize("tracked", [True, False])
def test_in_checkout_the_context_is_removed_from_the_file_afterwards(crew: Crew, tracked: bool) -> None:
    program(crew, "exit 7")
    if tracked:
        (crew.root / "AGENTS.md").write_text("# House rules\nno tabs\n")
        crew.git("add", "AGENTS.md")
        crew.git("commit", "-q", "-m", "rules")
    crew.liza("run", "tidy", code=7)  # once, so that the files of git exist
    before = files(crew)
    done = subprocess.run(
        [str(BIN / "liza"), "run", "tidy", "--", "--model", "big"], cwd=crew.root, input=b"a pipe\n", check=False
    )
    assert done.returncode == 7
    brief = seen(crew, "brief")
    assert " <- human:" in brief
    assert "• cold-start:by hand •" in brief
    assert "you hold no task" in brief
    assert brief.endswith("no tabs\n" if tracked else "-->\n")
    assert seen(crew, "status") == ""
    assert seen(crew, "args") == "--model big\n"
    assert seen(crew, "input") == "a pipe\n"
    assert "LIZA_RUN=" not in seen(crew, "env")
    assert files(crew) == before
    assert (crew.root / "AGENTS.md").exists() is tracked
    assert crew.git("status", "--short") == ""


@pytest.mark.campaign
@pytest.mark.parametrize("command", [("down",), ("doctor", "--fix")])
def test_files_that_a_killed_run_left_in_checkouts_are_removed(crew: Crew, command: tuple[str, ...]) -> None:
    program(crew, f'echo "$$" > "{crew.notes}/at"; read line < "{crew.notes}/gate"')
    crew.gate("gate")
    child = subprocess.Popen([str(BIN / "liza"), "run", "tidy"], cwd=crew.root, stdin=subprocess.DEVNULL)
    pid = int(crew.wait_note("at"))
    child.kill()
    child.wait()
    crew.run(*command)
    assert (crew.root / "AGENTS.md").exists(), "its program still runs"
    os.kill(pid, signal.SIGKILL)
    crew.wait(lambda _: not Path(f"/proc/{pid}").exists(), "the program is gone")
    crew.run(*command)
    assert not (crew.root / "AGENTS.md").exists()
    assert crew.git("status", "--short") == ""
    assert list((crew.root / ".liza" / "by-hand").iterdir()) == []


def test_a_program_gets_ctrl_c_and_is_cleaned_up_after(crew: Crew) -> None:
    act = f"""[ -t 0 ] && [ -t 1 ] && echo yes > "{crew.notes}/terminal"
trap 'exit 9' INT; echo up > "{crew.notes}/at"; read line < "{crew.notes}/gate\""""
    path = crew.notes / "tidy"
    path.write_text(f'#!/bin/sh\ncp AGENTS.md "{crew.notes}/brief"\n{act}\n')
    path.chmod(0o755)
    (crew.root / ".liza" / "programs.toml").write_text(ROW.format(command=path))
    crew.gate("gate")
    terminal = Terminal(crew, "run", "tidy")
    crew.wait_note("at")
    assert terminal.press_ctrl_c() == 9
    assert seen(crew, "terminal") == "yes\n"
    assert "cold-start:by hand" in seen(crew, "brief")
    assert not (crew.root / "AGENTS.md").exists()


def test_a_run_in_a_claimed_worktree_gets_the_tasks_brief(crew: Crew) -> None:
    program(crew, "echo work > t1.txt; git add -A; git commit -q -m work")
    crew.liza("config", "set", "sandbox_setup", "touch set-up")
    crew.liza("claim", "t1", "--agent", "coder-1")
    slot = worktree_of(crew.root, "t1").resolve()
    told = crew.run("run", "tidy", cwd=slot)
    assert "(first run the set-up: touch set-up)" in seen(crew, "brief")
    assert "a person may answer questions here" in seen(crew, "brief")
    assert told.returncode == 0, told.stderr
    assert "coder-1 still holds t1" in told.stderr
    assert "• assigned:t1 • run:coder-1.1" in seen(crew, "brief")
    assert seen(crew, "status") == ""
    for line in ("LIZA_RUN=coder-1.1", "LIZA_TASK=t1", "LIZA_AGENT_ID=coder-1", f"LIZA_ROOT={crew.root}"):
        assert f"\n{line}\n" in f"\n{seen(crew, 'env')}"
    assert not (slot / "AGENTS.md").exists()
    assert crew.git("show", "--stat", "--format=", "HEAD", cwd=slot).split()[0] == "t1.txt"
    assert not crew.paths.run("coder-1.1").exists()
    assert (crew.status("t1"), crew.task("t1").run) == ("CLAIMED", "coder-1.1")
    # Again, and this time it submits.
    program(crew, "liza submit")
    crew.liza("run", "tidy", cwd=slot)
    assert crew.status("t1") == "READY_FOR_REVIEW"


@pytest.mark.campaign
def test_a_worktree_is_refused_to_all_but_its_present_agent(crew: Crew) -> None:
    program(crew)
    gate = crew.script("coder", f'echo here > "{crew.notes}/at"\nread line < "{crew.notes}/gate"\n')
    crew.gate("gate")
    supervisor = crew.agent("coder-1", gate)
    crew.wait_note("at")
    slot = worktree_of(crew.root, "t1").resolve()
    assert "coder-1 has a supervisor" in crew.run("run", "tidy", cwd=slot).stderr
    supervisor.stop()
    assert "LIZA_AGENT_ID is coder-2" in crew.run("run", "tidy", cwd=slot, LIZA_AGENT_ID="coder-2").stderr
    # The session before was ended by its supervisor: the work goes on in the next run.
    crew.liza("run", "tidy", cwd=slot, LIZA_AGENT_ID="coder-1")
    assert "run:coder-1.2" in seen(crew, "brief")
    crew.liza("task", "release", "t1")
    assert crew.run("run", "tidy", cwd=slot).returncode == 1
    assert "unknown program 'tydi'" in crew.run("run", "tydi").stderr
    assert "is missing" in crew.run("run", "script:./none").stderr
    (crew.notes / "tidy").write_text("#!/no/such/shell\n")
    assert "tidy cannot be started: No such file" in crew.liza("run", "tidy", code=5)
    assert not (crew.root / "AGENTS.md").exists()


def test_a_run_killed_in_a_worktree_counts_as_no_try(crew: Crew) -> None:
    program(crew, f'echo "$$" > "{crew.notes}/at"; read line < "{crew.notes}/gate"')
    crew.gate("gate")
    crew.liza("claim", "t1", "--agent", "coder-1")
    slot = worktree_of(crew.root, "t1").resolve()
    child = subprocess.Popen([str(BIN / "liza"), "run", "tidy"], cwd=slot, stdin=subprocess.DEVNULL)
    pid = int(crew.wait_note("at"))
    child.kill()
    child.wait()
    assert "runs already" in crew.run("run", "tidy", cwd=slot).stderr
    os.kill(pid, signal.SIGKILL)
    crew.wait(lambda _: not Path(f"/proc/{pid}").exists(), "the program is gone")
    program(crew)
    crew.liza("run", "tidy", cwd=slot)
    assert not (slot / "AGENTS.md").exists()
    assert (crew.task("t1").iteration, crew.task("t1").run) == (1, "coder-1.1")


def test_a_scripts_relative_path_starts_in_the_persons_directory(crew: Crew) -> None:
    directory = crew.root / "tools"
    directory.mkdir()
    script = directory / "agent.sh"
    script.write_text('#!/bin/sh\necho "$@" > "$NOTES/args"\n')
    script.chmod(0o755)
    crew.liza("run", "script:./agent.sh", "--", "one", cwd=directory, NOTES=str(crew.notes))
    assert seen(crew, "args") == "one\n"
    refused = crew.liza("run", "script:./agent.sh", code=5)
    assert f"'{crew.root}/agent.sh' is missing" in refused
    assert "liza programs list" in refused
    assert "liza up" not in refused
