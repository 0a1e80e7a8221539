"""The shell completes commands, ids, names and values, and offers nothing where nothing is known."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.journeys.crews import BIN, Crew


def ask_bash(directory: Path, line: str, **env: str) -> tuple[str, list[str]]:
    """The option for bash and the words, as the script of `--show-completion bash` asks for them."""
    answer = subprocess.run(
        [str(BIN / "liza")],
        cwd=directory,
        env={**os.environ, "COMP_LINE": line, "COMP_POINT": str(len(line)), "_LIZA_COMPLETE": "complete_bash", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    option, *words = answer.stdout.rstrip("\n").split("\n")
    return option, words


def words_of(crew: Crew, line: str) -> list[str]:
    return ask_bash(crew.root, line)[1]


@pytest.fixture
def filled(crew: Crew) -> Crew:
    """A crew with a claimed task of an epic, and one that nobody has."""
    crew.add("invoice-model", epic="invoices")
    crew.add("stock")
    crew.prepare("claim", "invoice-model", "--agent", "coder-1")
    return crew


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("liza stat", ["status"]),
        ("liza task sh", ["show"]),
        ("liza task show ", ["invoice-model", "stock"]),
        ("liza diff inv", ["invoice-model"]),
        ("liza task release ", ["invoice-model"]),
        ("liza answer ", []),
        ("liza merge ", []),
        ("liza task add --depends stock,", ["stock,invoice-model"]),
        ("liza agents ", ["coder-1"]),
        ("liza down ", ["coder-1"]),
        ("liza up ", ["coder-1", "planner-1", "code-reviewer-1", "coder-2"]),
        ("liza up coder-1 co", ["code-reviewer-1", "coder-2"]),
        ("liza claim --agent co", ["coder-1"]),
        ("liza logs ", ["coder-1", "invoice-model", "stock"]),
        ("liza note --to s", ["stock"]),
        ("liza epics accept ", ["invoices"]),
        ("liza slots nuke ", ["s1"]),
        ("liza help task dr", ["drop"]),
    ],
)
def test_ids_agents_and_names_of_the_crew_are_completed(filled: Crew, line: str, words: list[str]) -> None:
    assert words_of(filled, line) == words


@pytest.mark.campaign
def test_programs_settings_and_their_values_are_completed(filled: Crew, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(shutil.which("true") or "/bin/true")
    path = {"PATH": f"{tmp_path / 'bin'}:{BIN}:/usr/bin:/bin"}
    for line, words in {
        "liza up --program cl": ["claude"],
        "liza up --program coder=cl": ["claude"],
        "liza up --program=coder=cl": ["claude"],
        "liza up --program co": ["coder=", "coder-1="],
        "liza up --program claude:a": ["acp"],
        "liza programs show clau": ["claude"],
    }.items():
        assert ask_bash(filled.root, line, **path)[1][: len(words)] == words, line
    assert ask_bash(filled.root, "liza up --program rev", **path) == ("nospace", ["reviewer="])
    assert words_of(filled, "liza explain expired_l") == ["expired_lease"]
    assert words_of(filled, "liza config get queue.") == ["queue.batch", "queue.parallel", "queue.retries"]
    assert words_of(filled, "liza config set push ") == ["auto", "never"]
    assert words_of(filled, "liza config set confinement r") == ["required"]
    assert words_of(filled, "liza config set slots.max ") == []
    assert words_of(filled, "liza task list --status to-") == ["to-fix", "to-do"]
    assert words_of(filled, "liza verdict ") == ["approve", "reject"]


def test_file_names_are_offered_only_where_a_file_fits(filled: Crew) -> None:
    assert ask_bash(filled.root, "liza task add --file ") == ("default", [])
    assert ask_bash(filled.root, "liza validate ") == ("default", [])
    assert ask_bash(filled.root, "liza task drop stock ") == ("", [])
    assert ask_bash(filled.root, "liza nonsense ") == ("", [])


@pytest.mark.campaign
def test_completion_takes_no_lock_and_fails_nowhere(filled: Crew, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.paths.liza.rglob("*")}
    filled.paths.state.chmod(0o400)
    with (filled.paths.state_lock).open("a") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        assert words_of(filled, "liza task show st") == ["stock"]
    assert {path: path.stat().st_mtime_ns for path in filled.paths.liza.rglob("*")} == before
    outside = tmp_path / "outside"
    outside.mkdir()
    assert ask_bash(outside, "liza task show ") == ("", [])
    assert "status" in ask_bash(outside, "liza ")[1]
    assert ask_bash(outside, "liza config set push ")[1] == ["auto", "never"]
    filled.paths.state.chmod(0o600)
    filled.paths.state.write_text("tasks: [")
    assert ask_bash(filled.root, "liza task show ") == ("", [])


@pytest.mark.campaign
def test_zsh_and_fish_get_the_same_values(filled: Crew) -> None:
    def ask(shell: str, typed: str, **env: str) -> subprocess.CompletedProcess[str]:
        asked = {"_LIZA_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": typed, **env}
        return subprocess.run(
            [str(BIN / "liza")],
            cwd=filled.root,
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert '"stock":"to do' in ask("zsh", "liza task show st").stdout
    assert ask("zsh", "liza task add --file ").stdout.strip() == "_files"
    assert ask("zsh", "liza task drop stock ").stdout.strip() == ""
    assert "'coder='" in ask("zsh", "liza up --program c").stdout
    assert ask("fish", "liza task show st", _TYPER_COMPLETE_FISH_ACTION="get-args").stdout.startswith("stock\tto do")
    for typed, code in (("liza task show st", 0), ("liza task drop stock ", 0), ("liza task add --file ", 1)):
        assert ask("fish", typed, _TYPER_COMPLETE_FISH_ACTION="is-args").returncode == code, typed


def read_until(terminal: int, text: str, limit: float = 30.0) -> str:
    end, shown = time.monotonic() + limit, ""
    while text not in shown:
        assert time.monotonic() < end, f"{text!r} is not in {shown!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


def test_bash_completes_at_a_terminal(filled: Crew, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = subprocess.run(
        [str(BIN / "liza"), "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (home / "complete.sh").write_text(script)
    (filled.root / "stockfile").write_text("")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(filled.root)
        environ = {**os.environ, "HOME": str(home), "PS1": "$ ", "TERM": "dumb", "PATH": f"{BIN}:{os.environ['PATH']}"}
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environ)
    try:
        os.write(terminal, f"source {home}/complete.sh; echo loa''ded\n".encode())
        read_until(terminal, "loaded")
        os.write(terminal, b"liza task show st\t")
        read_until(terminal, "liza task show stock ")
        os.write(terminal, b"\x15liza up --program rev\t")
        read_until(terminal, "--program reviewer=")
        os.write(terminal, b"script\t")
        read_until(terminal, "script:")
        # No file fits here, and "stockfile" is one.
        os.write(terminal, b"\x15liza note --to stockf\t\techo-was-not-completed\n")
        assert "stockfile" not in read_until(terminal, "completed")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
