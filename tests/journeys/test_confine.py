"""A person looks around in the box of a worktree."""

from __future__ import annotations

import os
import pty
import sys
from contextlib import suppress

import pytest

from tests.conftest import worktree_of
from tests.journeys.crews import BIN, Crew

pytestmark = pytest.mark.needs("bwrap")

TYPE = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"


def test_a_person_can_run_a_command_in_an_agents_box(crew: Crew) -> None:
    crew.add("mail")
    crew.prepare("claim", "mail", "--agent", "coder-1")
    there = worktree_of(crew.root, "mail").resolve()
    script = 'pwd; echo x > made && ! echo x > "$ROOT/made" && ! ls "$ROOT/.liza/run" && ! git add made && exit 7'
    for name in ("mail", "coder-1"):
        done = crew.run("confine", name, "--", "sh", "-c", script, ROOT=str(crew.root))
        assert (done.returncode, done.stdout) == (7, f"{there}\n"), done.stderr
    assert (there / "made").exists()
    assert not (crew.root / "made").exists()
    assert crew.liza("confine", "git", "log", "-1", "--format=%s", cwd=there).strip() == "first"


def test_liza_in_the_box_reports_that_the_board_is_hidden(crew: Crew) -> None:
    crew.add("mail")
    crew.prepare("claim", "mail", "--agent", "coder-1")
    answer = crew.liza("confine", "mail", "--", "liza", "status", code=5)
    assert "shows no board" in answer
    assert "restore" not in answer


def test_a_name_without_a_worktree_is_refused_with_a_step(crew: Crew) -> None:
    crew.add("mail")
    assert "it has no worktree" in crew.liza("confine", "mail", code=1)
    assert "no task and no agent" in crew.liza("confine", "male", "--", "ls", code=1)
    assert "liza slots" in crew.liza("confine", code=2)


def test_a_boxed_program_cannot_type_into_the_persons_terminal(crew: Crew) -> None:
    crew.add("mail")
    crew.prepare("claim", "mail", "--agent", "coder-1")
    pid, terminal = pty.fork()
    if pid == 0:
        with suppress(OSError):
            os.chdir(crew.root)
            words = [str(BIN / "liza"), "confine", "mail", "--", sys.executable, "-c", TYPE]
            os.execv(words[0], words)
        os._exit(1)
    screen = b""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            screen += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert b"Error" in screen, screen
