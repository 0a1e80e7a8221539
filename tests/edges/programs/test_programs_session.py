"""Sessions with real shims and real processes: they outlive their supervisor, and nothing outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.model.errors import LizaError, Refused
from liza.model.paths import Paths
from liza.programs import liveness
from liza.programs.liveness import EndedSession, NoSession, RunningSession, ShimStarting, VanishedSession
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.session.session_process import StartFailed
from liza.system import ancestors, processes
from tests.conftest import LONG, until

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Crew:
    """A crew's root, and runs in it that are all ended when the test is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths(root)
        self.made: list[RunDir] = []

    def run(self, name: str = "coder-1.1") -> RunDir:
        run = RunDir(self.paths, name)
        run.create(RunRecord(agent=run.agent, run=name, kind="work", started=NOW, task="task-1"))
        self.made.append(run)
        return run

    def env(self, run: RunDir, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LIZA_RUN": run.run, "LIZA_ROOT": str(self.root), **more}

    def start(self, run: RunDir, script: str, stdin: str | None = None) -> RunningSession:
        started = session_process.start(
            run.path, ["sh", "-c", textwrap.dedent(script)], self.root, self.env(run), stdin
        )
        assert isinstance(started, RunningSession), started
        return started


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path.resolve())
    yield crew
    for run in crew.made:
        session_process.stop(run.path, run.run, crew.root, grace=0)
        assert tuple(processes.iter_run_pids(run.run, crew.root)) == ()


def test_ended_program_leaves_its_code_its_output_and_no_orphan(crew: Crew) -> None:
    run = crew.run()
    assert liveness.read_state(run.path) == NoSession()
    started = crew.start(run, "echo out; echo err >&2; exit 3")
    assert started.child.pid != started.shim.pid
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert (end.code, end.signal, end.error, end.strays) == (3, None, None, 0)
    assert sorted(run.output_tail().split()) == ["err", "out"]
    assert liveness.read_end(run.path) == end


def test_session_json_is_there_before_the_programs_first_instruction(crew: Crew) -> None:
    run = crew.run()
    crew.start(run, f"test -s {run.path}/session.json")
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 0


def test_a_signal_is_distinguished_from_an_exit_code(crew: Crew) -> None:
    run = crew.run()
    crew.start(run, "kill -9 $$")
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert (end.code, end.signal) == (None, signal.SIGKILL)
    assert liveness.describe_end(end) == "ended by SIGKILL"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda root: str(root / "nowhere"), "No such file or directory"),
        (lambda root: "a-program-that-nobody-has", "a-program-that-nobody-has: No such file or directory"),
        (lambda root: str(root), "Permission denied"),
    ],
)
def test_program_that_cannot_start_is_distinguished_from_a_failed_one(
    crew: Crew, make: Callable[[Path], str], says: str
) -> None:
    run = crew.run()
    started = session_process.start(run.path, [make(crew.root)], crew.root, crew.env(run))
    assert isinstance(started, StartFailed)
    assert says in started.reason
    end = liveness.read_state(run.path)
    assert isinstance(end, EndedSession)
    assert end.code is None
    assert end.error == started.reason


def test_a_script_without_an_interpreter_line_is_named(crew: Crew) -> None:
    script = crew.root / "agent.sh"
    script.write_text("echo hi\n")
    script.chmod(0o755)
    run = crew.run()
    started = session_process.start(run.path, [str(script)], crew.root, crew.env(run))
    assert isinstance(started, StartFailed)
    assert "#!" in started.reason


def test_the_error_names_the_missing_directory_and_not_the_program(crew: Crew) -> None:
    run = crew.run()
    started = session_process.start(run.path, ["true"], crew.root / "gone", crew.env(run))
    assert isinstance(started, StartFailed)
    assert str(crew.root / "gone") in started.reason


def test_a_run_directory_never_holds_two_sessions(crew: Crew) -> None:
    run = crew.run()
    crew.start(run, "exec sleep 60")
    with pytest.raises(Refused, match="has a session already"):
        crew.start(run, "true")
    session_process.stop(run.path, run.run, crew.root, grace=LONG)
    with pytest.raises(Refused, match="has a session already"):
        crew.start(run, "true")


def test_of_many_starters_of_one_run_at_once_one_wins(crew: Crew) -> None:
    run = crew.run()
    code = """
        import sys
        from pathlib import Path
        from liza.programs.session import session_process as session
        from liza.model.errors import Refused
        try:
            started = session.start(Path(sys.argv[1]), ["sleep", "60"], Path("/"), {"PATH": sys.argv[2]})
        except Refused:
            sys.exit(7)
        print(started.child.pid)
    """
    words = [sys.executable, "-c", textwrap.dedent(code), str(run.path), os.environ["PATH"]]
    racers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [racer.communicate(timeout=LONG)[0].strip() for racer in racers]
    assert sorted(racer.returncode for racer in racers) == [0, 7, 7, 7]
    living = liveness.read_state(run.path)
    assert isinstance(living, RunningSession)
    assert [word for word in said if word] == [str(living.child.pid)]


def test_stdin_is_the_text_or_nothing_at_all(crew: Crew) -> None:
    text = "a long prompt\n" * 30_000
    told, silent = crew.run(), crew.run("coder-1.2")
    crew.start(told, "wc -c", stdin=text)
    crew.start(silent, "wc -c")
    assert isinstance(session_process.wait_for_end(told.path, LONG), EndedSession)
    assert isinstance(session_process.wait_for_end(silent.path, LONG), EndedSession)
    assert int(told.output_tail()) == len(text)
    assert int(silent.output_tail()) == 0


def test_a_shim_outlives_its_starter_and_keeps_the_exit_code(
    crew: Crew,
) -> None:
    run = crew.run()
    code = f"""
        import os
        from pathlib import Path
        from liza.programs.session import session_process as session
        from liza.system.processes import identify_self as identity
        go = {str(crew.root / "go")!r}
        env = {{"PATH": os.environ["PATH"]}}
        session.start(Path({str(run.path)!r}), ["sh", "-c", f"read x < {{go}}; exit 5"], Path("/"), env)
        os.killpg(0, 9)
    """
    os.mkfifo(crew.root / "go")
    starter = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, start_new_session=True)
    assert starter.returncode == -signal.SIGKILL
    living = liveness.read_state(run.path)
    assert isinstance(living, RunningSession)
    handle = session_process.open_wait_fd(living)
    (crew.root / "go").write_text("now\n")
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 5
    if handle is not None:
        assert processes.wait_readable(handle, LONG)
        os.close(handle)


@pytest.mark.campaign
def test_a_killed_starter_leaves_no_half_started_session(crew: Crew) -> None:
    code = """
        import os, sys, threading
        from pathlib import Path
        from liza.programs.session import session_process as session
        threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), 9)).start()
        session.start(Path(sys.argv[1]), ["sleep", "60"], Path("/"), {"PATH": os.environ["PATH"]})
    """
    for number in range(1, 13):
        run = crew.run(f"coder-1.{number}")
        words = [sys.executable, "-c", textwrap.dedent(code), str(run.path), str(number * 0.006)]
        subprocess.run(words, check=False, start_new_session=True)
        until(
            lambda run=run: not isinstance(liveness.read_state(run.path), ShimStarting),
            "the shim neither started nor died",
        )
        found = liveness.read_state(run.path)
        assert isinstance(found, RunningSession | NoSession), found
        if isinstance(found, RunningSession):
            assert processes.is_proved_dead(found.child) is False


def test_a_killed_shims_child_dies_and_its_session_vanishes(crew: Crew) -> None:
    run = crew.run()
    started = crew.start(run, "exec sleep 60")
    os.kill(started.shim.pid, signal.SIGKILL)
    found = session_process.wait_for_end(run.path, LONG)
    assert found == VanishedSession(shim=started.shim, child=started.child)


def test_a_killed_shims_child_is_found_by_its_environment(crew: Crew) -> None:
    run = crew.run()
    mark = crew.root / "tool.pid"
    started = crew.start(run, f"setsid sh -c 'trap \"\" TERM; echo $$ > {mark}; while :; do sleep 0.05; done' & wait")
    until(lambda: mark.exists() and mark.read_text().strip(), "the tool never ran")
    tool = processes.identify_process(int(mark.read_text()))
    assert tool is not None
    os.kill(started.shim.pid, signal.SIGKILL)
    assert isinstance(session_process.wait_for_end(run.path, LONG), VanishedSession)
    assert processes.is_proved_dead(tool) is False
    assert isinstance(session_process.stop(run.path, run.run, crew.root, grace=LONG), VanishedSession)
    assert processes.is_proved_dead(tool) is True


def test_stop_lets_a_program_exit_with_its_own_code(crew: Crew) -> None:
    run = crew.run()
    crew.start(run, "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: "ready" in run.output_tail(), "it never got ready")
    end = session_process.stop(run.path, run.run, crew.root, grace=LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 9
    assert "bye" in run.output_tail()


def test_stop_ends_a_child_that_left_its_session_and_group(crew: Crew) -> None:
    run = crew.run()
    crew.start(
        run,
        """
        trap '' TERM
        setsid sh -c 'trap "" TERM; echo one; while :; do sleep 0.05; done' &
        while :; do sleep 0.05; done
        """,
    )
    until(lambda: "one" in run.output_tail(), "the tool never ran")
    assert len(tuple(processes.iter_run_pids(run.run, crew.root))) >= 2
    end = session_process.stop(run.path, run.run, crew.root, grace=0.1)
    assert isinstance(end, EndedSession)
    assert end.signal == signal.SIGKILL
    assert tuple(processes.iter_run_pids(run.run, crew.root)) == ()


def test_stop_finds_a_tool_without_its_environment_and_its_parent(crew: Crew) -> None:
    run = crew.run()
    mark = crew.root / "tool.pid"
    crew.start(
        run,
        f"""
        (env -i setsid sh -c 'trap "" TERM; echo $$ > {mark}; while :; do sleep 0.05; done' &)
        trap '' TERM; while :; do sleep 0.05; done
        """,
    )
    until(lambda: mark.exists() and mark.read_text().strip(), "the tool never ran")
    tool = processes.identify_process(int(mark.read_text()))
    assert tool is not None
    session_process.stop(run.path, run.run, crew.root, grace=0.1)
    assert processes.is_proved_dead(tool) is True


def test_processes_a_program_leaves_are_ended_and_counted(crew: Crew) -> None:
    run = crew.run()
    mark = crew.root / "tool.pid"
    script = f"setsid sh -c 'echo $$ > {mark}; exec sleep 60' & while ! test -s {mark}; do sleep 0.02; done; exit 0"
    crew.start(run, script)
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert (end.code, end.strays) == (0, 1)
    assert processes.identify_process(int(mark.read_text())) is None


def test_stop_leaves_another_crews_run_of_the_same_name_alone(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Crew((tmp_path / "other").resolve())
    mine, theirs = crew.run(), other.run()
    crew.start(mine, "exec sleep 60")
    neighbour = other.start(theirs, "exec sleep 60")
    session_process.stop(mine.path, mine.run, crew.root, grace=LONG)
    assert processes.is_proved_dead(neighbour.child) is False
    session_process.stop(theirs.path, theirs.run, other.root, grace=0)


def test_stop_of_what_is_over_changes_nothing_and_is_repeatable(crew: Crew) -> None:
    run = crew.run()
    assert session_process.stop(run.path, run.run, crew.root, grace=0) == NoSession()
    crew.start(run, "exit 0")
    end = session_process.wait_for_end(run.path, LONG)
    assert session_process.stop(run.path, run.run, crew.root, grace=0) == end
    assert session_process.stop(run.path, run.run, crew.root, grace=0) == end


def test_stop_continues_a_stopped_program(crew: Crew) -> None:
    run = crew.run()
    started = crew.start(run, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: "ready" in run.output_tail(), "it never got ready")
    os.kill(started.child.pid, signal.SIGSTOP)
    end = session_process.stop(run.path, run.run, crew.root, grace=LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 4


def test_term_to_the_shim_reaches_the_program(crew: Crew) -> None:
    run = crew.run()
    started = crew.start(run, "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done")
    until(lambda: "ready" in run.output_tail(), "it never got ready")
    os.kill(started.shim.pid, signal.SIGTERM)
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 6


def test_hangup_and_interrupt_do_not_end_the_shim(crew: Crew) -> None:
    run = crew.run()
    started = crew.start(run, "exec sleep 60")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(started.shim.pid, number)
    os.kill(started.child.pid, signal.SIGKILL)
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert end.signal == signal.SIGKILL


def test_no_value_of_the_environment_is_left_on_disk(crew: Crew) -> None:
    run = crew.run()
    env = crew.env(run, SECRET_KEY="sk-very-secret")
    started = session_process.start(run.path, ["sh", "-c", "test ${#SECRET_KEY} = 14"], crew.root, env)
    assert isinstance(started, RunningSession)
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert end.code == 0
    for file in run.path.iterdir():
        if file.is_file():
            assert b"sk-very-secret" not in file.read_bytes()
    assert "SECRET_KEY" in (run.path / "launch.json").read_text()


def test_a_tool_without_environment_and_parent_stays_in_the_session(crew: Crew) -> None:
    run = crew.run()
    out, tool = crew.root / "seen", crew.root / "tool.py"
    code = f"""
        import json, os, time
        from pathlib import Path
        from liza.system.ancestors import ancestor_environments as environs
        shim = json.loads(Path({str(run.path / "session.json")!r}).read_text())["shim"]["pid"]
        while os.getppid() != shim:
            time.sleep(0.01)
        Path({str(out)!r}).write_text(repr([environ.get("LIZA_RUN") for environ in environs()]))
    """
    tool.write_text(textwrap.dedent(code))
    orphan = f"(env -i PYTHONPATH={Path.cwd()} setsid {sys.executable} {tool} &)"
    crew.start(run, f"{orphan}; while ! test -s {out}; do sleep 0.02; done")
    assert isinstance(session_process.wait_for_end(run.path, LONG), EndedSession)
    assert run.run in out.read_text()
    assert run.run not in [env.get("LIZA_RUN") for env in ancestors.ancestor_environments()]


def test_an_unreadable_end_is_an_error_and_not_an_end(crew: Crew) -> None:
    run = crew.run()
    (run.path / "exit.json").write_text("{")
    with pytest.raises(LizaError, match=r"exit\.json cannot be read"):
        liveness.read_state(run.path)
    (run.path / "exit.json").unlink()


def test_a_program_that_prints_much_is_not_slowed_by_readers(crew: Crew) -> None:
    run = crew.run()
    crew.start(run, "head -c 5000000 /dev/zero | tr '\\0' x; exit 0")
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession)
    assert run.output_path.stat().st_size == 5_000_000
    assert len(run.output_tail(100)) == 100
