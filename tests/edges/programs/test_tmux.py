"""Sessions in real terminals: the same run as without one, typing that is proved, and nothing that stays behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from liza.crew import crew as verbs
from liza.model.errors import Missing, Refused
from liza.model.paths import Paths
from liza.model.session_ends import SessionOutcome
from liza.programs import liveness
from liza.programs.liveness import EndedSession, RunningSession
from liza.programs.presets.preset import Dialog, Preset
from liza.programs.session import outcomes, session_process
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.session.session_process import StartFailed
from liza.programs.terminal import keyboard, readiness, tmux
from liza.programs.terminal import pane as pane_module
from liza.programs.terminal.keyboard import NotSent, Sent
from liza.programs.terminal.pane import Pane, PaneAddress, TmuxNotAnswering
from liza.programs.terminal.readiness import NotReady, NotReadyReason, Ready, StillStarting
from liza.supervisor import down
from liza.supervisor.start import UpOptions, up
from liza.system import processes
from liza.view.attach import attach
from tests.campaign.small_board import FIRST
from tests.conftest import LONG, FakeClock, until

pytestmark = pytest.mark.needs("tmux")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TUI = Preset(name="tui", ready_prompt="❯ ", dialogs=(Dialog(kind="trust", match="Do you trust the files"),))
LINES = Preset(name="lines")

# A program as agents are: it takes the terminal over, asks for pastes as a whole, and keeps what was sent in a file.
PROGRAM = r"""
import os, sys, termios, time, tty
deaf, enters, dialog = float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "dialog"
print("Loading...", flush=True)
time.sleep(deaf)
tty.setraw(0, termios.TCSAFLUSH)
def show(text): os.write(1, text.encode())
show("\x1b[?2004h\x1b[2J\x1b[H")
draft, pressed, said = "", 0, []
def draw():
    show("\x1b[2J\x1b[H" + "".join(line + "\r\n" for line in said[-9:]))
    if dialog: show("Do you trust the files in this folder?\r\n\u276f 1. Yes, proceed\r\n  2. No, exit\r\n")
    else: show("\u256d" + "\u2500" * 30 + "\u256e\r\n\u276f\u00a0" + draft[-400:] + "\r\n? for shortcuts")
draw()
while True:
    got = os.read(0, 65536).decode()
    for one in got.replace("\x1b[200~", "").replace("\x1b[201~", "\0").split("\0"):
        if dialog: open(sys.argv[1], "a").write("answered the dialog\n"); dialog = False
        elif one == "\r":
            pressed += 1
            if pressed >= enters:
                open(sys.argv[1], "a").write(draft + "\n")
                said.append("\u276f " + draft[-60:]); draft = ""; pressed = 0
        else: draft += one.replace("\r", "\n")
    draw()
"""


class Clock:
    @staticmethod
    def monotonic() -> float:
        return time.monotonic()


class Crew:
    """A crew with a tmux server of its own, which is ended with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths(root)
        self.made: list[RunDir] = []
        self.told = root / "told"

    def run(self, name: str = "coder-1.1") -> RunDir:
        run = RunDir(self.paths, name)
        run.create(RunRecord(agent=run.agent, run=name, kind="work", started=NOW, task="task-1"))
        self.made.append(run)
        return run

    def env(self, run: RunDir, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "LIZA_RUN": run.run, "LIZA_ROOT": str(self.root), "TERM": "dumb", **more}

    def start(self, words: list[str], name: str = "coder-1.1", **more: str) -> tuple[RunDir, Pane]:
        run = self.run(name)
        started = tmux.start(run.path, words, self.root, self.env(run, **more))
        assert isinstance(started, RunningSession), started
        pane = tmux.find_pane(self.root, name)
        assert pane is not None
        return run, pane

    def python(self, code: str, name: str = "coder-1.1") -> tuple[RunDir, Pane]:
        return self.start([sys.executable, "-c", textwrap.dedent(code)], name)

    def tui(self, *, deaf: float = 0.0, enters: int = 1, dialog: bool = False) -> tuple[RunDir, Pane]:
        words = [sys.executable, "-c", PROGRAM, str(self.told), str(deaf), str(enters), "dialog" if dialog else "none"]
        return self.start(words)

    def heard(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    # The name of a socket must be short.
    sockets = Path(tempfile.mkdtemp(prefix="tm"))
    monkeypatch.setenv("TMUX_TMPDIR", str(sockets))
    monkeypatch.delenv("TMUX", raising=False)
    # What tmux and a shell would make something of.
    root = tmp_path.resolve() / "a #{pid} b%H'c;"
    root.mkdir()
    crew = Crew(root)
    yield crew
    for run in crew.made:
        session_process.stop(run.path, run.run, crew.root, grace=0)
        assert tuple(processes.iter_run_pids(run.run, crew.root)) == ()
    tmux.close_all_panes(crew.root)
    until(lambda: not any(map(answers, sockets.glob("*/liza-*"))), "no tmux server is left")
    shutil.rmtree(sockets)


def answers(address: Path) -> bool:
    return not subprocess.run(["tmux", "-S", address, "ls"], capture_output=True, check=False).returncode


def ended(run: RunDir) -> EndedSession:
    end = session_process.wait_for_end(run.path, LONG)
    assert isinstance(end, EndedSession), end
    return end


def test_a_run_in_a_terminal_has_the_same_files(crew: Crew) -> None:
    code = """
        import os
        print(os.environ["TERM"], os.tcgetpgrp(0) == os.getpgrp(), os.environ.get("TMUX"), os.environ["LIZA_RUN"])
        raise SystemExit(3)
    """
    run, pane = crew.python(code)
    end = ended(run)
    assert (end.code, end.signal, end.error, end.strays) == (3, None, None, 0)
    wanted = "screen-256color True None coder-1.1"
    until(lambda: wanted in run.output_tail(), "the log has what was said")
    assert pane.capture().strip() == wanted
    assert not pane.path.joinpath("start.sock").exists()
    tmux.close_pane(crew.root, run.run)
    assert tmux.find_pane(crew.root, run.run) is None
    tmux.close_pane(crew.root, run.run)


def test_keys_reach_neither_the_tmux_server_nor_the_disk(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "of-the-supervisor")
    run, pane = crew.start(["sleep", "60"], VENDOR_KEY="of-the-session")
    told = [*pane.run_tmux("show-environment", "-g"), *pane.run_tmux("show-environment", "-t", "=coder-1_1")]
    birth = Path(f"/proc/{pane.address.server}/environ")
    told += [birth.read_bytes().decode()] if birth.exists() else []
    told += [path.read_text() for path in run.path.iterdir() if path.is_file()]
    assert "of-the-" not in "\n".join(told)


def test_program_that_cannot_start_gives_the_same_reason_at_terminals(crew: Crew) -> None:
    run = crew.run()
    started = tmux.start(run.path, ["a-program-that-nobody-has"], crew.root, crew.env(run))
    assert started == StartFailed(reason="a-program-that-nobody-has: No such file or directory")
    assert liveness.read_state(run.path) == ended(run)


def test_without_tmux_nothing_starts_and_the_reason_is_given(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    run = crew.run()
    monkeypatch.setenv("PATH", str(crew.root))
    started = tmux.start(run.path, ["true"], crew.root, crew.env(run))
    assert isinstance(started, StartFailed)
    assert "tmux is not installed" in started.reason
    assert liveness.read_state(run.path) == liveness.NoSession()


def test_without_tmux_a_crew_with_terminals_is_refused_at_once(
    board: verbs.Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(board.paths.root))
    with pytest.raises(Missing, match="tmux is not installed"):
        up(board, UpOptions(terminal=True, detached=True), print)


def test_a_run_never_has_two_sessions(crew: Crew) -> None:
    run, _ = crew.start(["sleep", "60"])
    for start in (tmux.start, session_process.start):
        with pytest.raises(Refused, match="has a session already"):
            start(run.path, ["true"], crew.root, crew.env(run))
    with pytest.raises(Refused, match="is running"):
        tmux.close_pane(crew.root, run.run)


def test_a_starter_killed_while_the_pane_opens_leaves_no_session(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> tuple[str, str]:
        raise KeyboardInterrupt

    run = crew.run()
    with monkeypatch.context() as patched:
        patched.setattr(tmux, "_send_launch", killed)
        with pytest.raises(KeyboardInterrupt):
            tmux.start(run.path, ["true"], crew.root, crew.env(run))
    assert liveness.read_state(run.path) == liveness.NoSession()
    assert isinstance(tmux.start(run.path, ["sh", "-c", "exit 7"], crew.root, crew.env(run)), RunningSession)
    assert ended(run).code == 7


def test_a_session_in_a_terminal_outlives_its_killed_starter(crew: Crew) -> None:
    run = crew.run()
    code = """
        import os, sys
        from pathlib import Path
        from liza.programs.terminal import tmux
        env = {"PATH": os.environ["PATH"], "LIZA_RUN": "coder-1.1", "LIZA_ROOT": sys.argv[2]}
        tmux.start(Path(sys.argv[1]), ["sh", "-c", "read line; exit 5"], Path("/"), env)
        os.killpg(0, 9)
    """
    words = [sys.executable, "-c", textwrap.dedent(code), str(run.path), str(crew.root)]
    assert subprocess.run(words, check=False, start_new_session=True).returncode == -signal.SIGKILL
    assert isinstance(liveness.read_state(run.path), RunningSession)
    pane = tmux.find_pane(crew.root, run.run)
    assert pane is not None
    pane.press_enter()
    assert ended(run).code == 5


def test_a_new_session_closes_only_its_own_agents_dead_panes(crew: Crew) -> None:
    for name in ("coder-1.1", "coder-11.1"):
        run, pane = crew.start(["true"], name)
        ended(run)
        until(pane.is_shim_dead, "the pane is dead")
    crew.start(["sleep", "60"], "coder-1.2")
    assert tmux.find_pane(crew.root, "coder-1.1") is None
    assert tmux.find_pane(crew.root, "coder-11.1") is not None


def test_a_killed_tmux_server_ends_the_program_with_a_signal(crew: Crew) -> None:
    run, pane = crew.start(["sleep", "60"])
    os.kill(pane.address.server, signal.SIGKILL)
    end = ended(run)
    assert end.signal == signal.SIGHUP
    assert tmux.find_pane(crew.root, run.run) is None


def test_a_program_that_lost_its_terminal_counts_as_crashed(
    crew: Crew,
) -> None:
    run, pane = crew.start(["sh", "-c", "trap '' HUP; echo here; while read line; do :; done; exit 0"])
    until(lambda: "here" in pane.capture(), "it came up")
    os.kill(pane.address.server, signal.SIGKILL)
    end = ended(run)
    assert (end.code, end.signal, end.unplugged) == (0, None, True)
    lost = "its terminal's server is gone (exit 0)"
    assert outcomes.classify_end(end, None, {}, moved=False) == SessionEnd(SessionOutcome.CRASHED, lost)
    not_begun = outcomes.classify_end(end, None, {}, moved=False, begun=False)
    assert not_begun == SessionEnd(SessionOutcome.HELD_UP, lost)
    assert outcomes.classify_end(end, "42", {}, moved=False) == SessionEnd(SessionOutcome.HANDED_OFF)
    other, _ = crew.start(["true"], "coder-2.1")
    assert ended(other).unplugged is False


def test_closing_what_a_dead_server_had_leaves_its_successor_alone(crew: Crew) -> None:
    run, pane = crew.start(["sleep", "60"], "coder-1.1")
    os.kill(pane.address.server, signal.SIGKILL)
    ended(run)
    until(lambda: processes.identify_process(pane.address.server) is None, "it is dead")
    crew.start(["sleep", "60"], "coder-2.1")
    tmux.close_agent_panes(crew.root, "coder-1")
    assert tmux.find_pane(crew.root, "coder-2.1") is not None


def test_a_stopped_tmux_server_is_not_waited_for(crew: Crew) -> None:
    _, pane = crew.start(["sleep", "60"])
    os.kill(pane.address.server, signal.SIGSTOP)
    try:
        until(lambda: pane_module.is_server_stopped(pane.address.server), "it stands still")
        with pytest.raises(Refused, match="is stopped"):
            pane.capture()
        assert tmux.find_stopped_server(crew.root, "coder-1.1") == pane.address.server
    finally:
        os.kill(pane.address.server, signal.SIGCONT)
    until(lambda: tmux.find_stopped_server(crew.root, "coder-1.1") is None, "it goes on")


def address_written(crew: Crew, name: str, socket_path: Path, server: int) -> None:
    run = crew.run(name)
    run.path.joinpath("pane.json").write_bytes(msgspec.json.encode(PaneAddress(socket=str(socket_path), server=server)))


def test_a_log_whose_writer_died_is_noticed_and_resumed(crew: Crew) -> None:
    run, pane = crew.start(["sh", "-c", "while read line; do echo heard $line; done"])
    pane.screen(0.0)
    assert pane.is_piped
    log = re.escape(str(run.path / "output.log"))
    (writer,) = processes.find_pids_with_open(log)
    os.kill(writer, signal.SIGKILL)
    until(lambda: not processes.find_pids_with_open(log), "the writer has ended")
    # tmux notices when it has something to write.
    pane.run_tmux("send-keys", "-t", pane.target, "lost", "Enter")
    until(lambda: (pane.screen(0.0), not pane.is_piped)[1], "it is seen")
    pane.start_log()
    pane.start_log()
    pane.run_tmux("send-keys", "-t", pane.target, "again", "Enter")
    until(lambda: "heard again" in run.output_tail(), "it is written down")
    pane.screen(0.0)
    assert pane.is_piped


@pytest.mark.parametrize("what", ["pipe", "link"])
def test_a_log_is_appended_only_to_a_regular_file(crew: Crew, what: str) -> None:
    run, pane = crew.start(["sleep", "60"])
    (run.path / "output.log").unlink()
    if what == "pipe":
        os.mkfifo(run.path / "output.log")
    else:
        (run.path / "output.log").symlink_to(crew.root / "precious")
    with pytest.raises(OSError, match=r"output\.log"):
        pane.start_log()
    assert not (crew.root / "precious").exists()


def test_another_tmux_server_has_no_terminal_of_the_run(crew: Crew) -> None:
    run, pane = crew.start(["sleep", "60"])
    address_written(crew, "coder-1.2", Path(pane.address.socket), os.getpid())
    assert tmux.find_pane(crew.root, "coder-1.2") is None
    with pytest.raises(Refused, match="is gone"):
        Pane(crew.root, run.run, PaneAddress(socket=pane.address.socket, server=os.getpid())).capture()


@pytest.mark.campaign
def test_a_silent_tmux_server_is_asked_once_for_all_runs(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane_module, "CALL_LIMIT", 0.5)
    path = crew.root / "tmux.sock"
    for number in range(4):
        address_written(crew, f"coder-1.{number}", path, os.getpid())
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(path))
        line.listen(100)
        with pytest.raises(TmuxNotAnswering, match="did not answer"):
            tmux.find_pane(crew.root, "coder-1.1")
        with pytest.raises(TmuxNotAnswering, match="has not answered an earlier call"):
            tmux.find_pane(crew.root, "coder-1.2")
        tmux.close_all_panes(crew.root)
    path.unlink()


def test_a_stopped_tmux_server_is_given_up_without_leaving_clients(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    myself = processes.identify_process(os.getpid())
    assert myself is not None
    # Other tests of this process may have a server that they share.
    before = set(processes.find_descendants(myself))
    _, pane = crew.start(["sleep", "60"])
    monkeypatch.setattr(pane_module, "CALL_LIMIT", 0.5)
    # It was looked at a moment before.
    monkeypatch.setattr(pane_module, "is_server_stopped", lambda _: False)
    os.kill(pane.address.server, signal.SIGSTOP)
    try:
        with pytest.raises(TmuxNotAnswering, match="did not answer within"):
            pane.capture()
        assert set(processes.find_descendants(myself)) <= before
    finally:
        os.kill(pane.address.server, signal.SIGCONT)
    monkeypatch.setattr(pane_module, "CALL_LIMIT", LONG)
    until(lambda: _answers(pane), "it answers again")


def _answers(pane: Pane) -> bool:
    try:
        return pane.exists()
    except TmuxNotAnswering:
        return False


def test_ctrl_z_leaves_no_unreachable_program(crew: Crew) -> None:
    _, pane = crew.python("print('here', flush=True)\nprint('got', input())\nprint('got', input())")
    until(lambda: "here" in pane.capture(), "it came up")
    pane.run_tmux("send-keys", "-t", pane.target, "C-z")
    assert keyboard.send(pane, "go on", LINES, Clock) == Sent(1)
    until(lambda: "got go on" in pane.capture(), "it goes on")


# Typing


def test_a_long_message_is_pasted_whole_and_once(crew: Crew) -> None:
    _, pane = crew.tui()
    text = "\n".join(f"line {number} of a long message" for number in range(1500))
    assert keyboard.send(pane, text, TUI, Clock) == Sent(1)
    assert "\n".join(crew.heard()) == text


def test_a_program_that_reads_lines_gets_one_line_per_message(crew: Crew) -> None:
    _, pane = crew.python(f"open({str(crew.told)!r}, 'w').write(input('> ') + '\\n'); input()")
    assert keyboard.send(pane, "first\n\nsecond \x1b[31mred", LINES, Clock) == Sent(1)
    until(crew.heard, "it was read")
    assert crew.heard() == ["first second [31mred"]


@pytest.mark.campaign
def test_a_program_that_discards_early_input_gets_messages_later(
    crew: Crew,
) -> None:
    _, pane = crew.tui(deaf=3.0)
    assert keyboard.send(pane, "hello", TUI, Clock) == Sent(1)
    assert crew.heard() == ["hello"]


@pytest.mark.campaign
def test_deaf_program_of_unknown_prompt_is_not_typed_into_early(crew: Crew) -> None:
    _, pane = crew.python(f"""
        import time, termios
        time.sleep(3)
        termios.tcflush(0, termios.TCIFLUSH)
        open({str(crew.told)!r}, 'w').write(input() + '\\n'); input()
    """)
    assert keyboard.send(pane, "hello", LINES, Clock) == Sent(1)
    until(crew.heard, "it was read")
    assert crew.heard() == ["hello"]


@pytest.mark.campaign
def test_a_program_that_needs_enter_twice_gets_it_twice(crew: Crew) -> None:
    _, pane = crew.tui(enters=2)
    assert keyboard.send(pane, "hello", TUI, Clock) == Sent(2)
    assert crew.heard() == ["hello"]


@pytest.mark.campaign
def test_a_trust_dialog_is_never_answered_but_named(crew: Crew) -> None:
    run, pane = crew.tui(dialog=True)
    until(lambda: "trust" in pane.capture(), "the dialog is there")
    said = "the program shows its trust dialog: 'Do you trust the files'"
    assert keyboard.send(pane, "hello", TUI, Clock) == NotSent(said)
    until(lambda: look(run, TUI, pane) == NotReady(NotReadyReason.DIALOG, said), "it stands there")
    assert crew.heard() == []


def test_a_program_that_dies_after_a_second_is_not_awaited(crew: Crew) -> None:
    run, pane = crew.python("import time; print('loading', flush=True); time.sleep(1); raise SystemExit(9)")
    began = time.monotonic()
    assert keyboard.send(pane, "hello", TUI, Clock) == NotSent(
        "the program is dead", is_retryable=False, counts_as_try=False
    )
    assert time.monotonic() - began < keyboard.TYPABLE_LIMIT / 2
    assert ended(run).code == 9


def test_a_shell_is_never_typed_into(crew: Crew) -> None:
    _, pane = crew.start(["bash", "--norc"], PS1="❯ ")
    until(lambda: "❯" in pane.capture(), "the shell is there")
    found = keyboard.send(pane, f"touch '{crew.told}'", TUI, Clock)
    assert found == NotSent("a shell has the terminal: bash --norc")
    assert not crew.told.exists()


def test_a_terminal_in_copy_mode_is_fetched_back_first(crew: Crew) -> None:
    _, pane = crew.tui()
    pane.run_tmux("copy-mode", "-t", pane.target)
    assert pane.run_tmux("display-message", "-p", "-t", pane.target, "#{pane_in_mode}") == ["1"]
    assert keyboard.send(pane, "hello", TUI, Clock) == Sent(1)
    assert pane.run_tmux("display-message", "-p", "-t", pane.target, "#{pane_in_mode}") == ["0"]
    assert crew.heard() == ["hello"]


def test_two_senders_at_once_are_heard_one_after_the_other(crew: Crew) -> None:
    _, pane = crew.tui()
    texts = [f"message {number} " * 20 for number in range(2)]
    came: list[object] = []

    def tell(text: str) -> None:
        came.append(keyboard.send(pane, text, TUI, Clock))

    senders = [threading.Thread(target=tell, args=(text,)) for text in texts]
    for one in senders:
        one.start()
    for one in senders:
        one.join(LONG)
    assert came == [Sent(1), Sent(1)]
    assert sorted(crew.heard()) == [text.strip() for text in texts]


# Readiness


def look(run: RunDir, preset: Preset, pane: Pane | None) -> object:
    return readiness.classify_readiness(readiness.gather_facts(run, preset, 1.0, 60.0, pane))


def test_a_visible_prompt_or_a_terminal_read_means_readiness(crew: Crew) -> None:
    run, pane = crew.tui()
    until(lambda: look(run, TUI, pane) == Ready("ready prompt"), "the prompt is seen")
    until(lambda: isinstance(look(run, LINES, pane), Ready), "the kernel says that it reads")
    assert "process" in str(look(run, LINES, pane))


WAITS = {
    "select": "import select; select.select([0], [], [])",
    "poll": "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()",
    "epoll": "import select; e = select.epoll(); e.register(0, select.EPOLLIN); e.poll()",
    "a thread": "import threading; threading.Thread(target=input).start(); threading.Event().wait()",
    "a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])",
}
AT_WORK = {
    "sleeps": "import time; time.sleep(60)",
    "computes": "while True: pass",
    "waits for a tool": "import subprocess; subprocess.run(['sleep', '60'], stdin=subprocess.DEVNULL)",
    "waits for what a tool says": "import subprocess; subprocess.run(['sleep', '60'], input=b'', capture_output=True)",
    "waits for the network alone": "import socket; a, b = socket.socketpair(); a.recv(1)",
}
needs_proc = pytest.mark.skipif(not processes.has_proc(), reason="there is no /proc here")


def said_by_kernel(run: RunDir) -> float | None:
    living = liveness.read_state(run.path)
    assert isinstance(living, RunningSession)
    found = readiness.process_signs(living, time.monotonic())
    return None if not found else 0.0 if found[0].is_busy else found[0].confidence


@pytest.mark.sample(2)
@needs_proc
@pytest.mark.parametrize("how", WAITS)
def test_every_way_to_wait_for_a_terminal_is_recognized(crew: Crew, how: str) -> None:
    run, _ = crew.python(WAITS[how])
    until(lambda: said_by_kernel(run) == 0.95, f"{how} is seen")


@pytest.mark.sample(2)
@needs_proc
@pytest.mark.parametrize("how", AT_WORK)
def test_a_silent_program_waiting_for_something_else_is_not_ready(crew: Crew, how: str) -> None:
    run, pane = crew.python("print('I am done.', flush=True)\n" + AT_WORK[how])
    until(lambda: "done" in pane.capture(), "it came up")
    os.utime(run.output_path, (time.time() - 60, time.time() - 60))
    until(lambda: said_by_kernel(run) == 0.0, f"{how} is seen")
    assert look(run, LINES, pane) == StillStarting("no sign of readiness yet")


@needs_proc
def test_a_program_possibly_awaiting_its_model_is_ready_once_silent(crew: Crew) -> None:
    run, pane = crew.python("""
        import select, socket
        a, b = socket.socketpair()
        both = select.epoll()
        both.register(0, select.EPOLLIN)
        both.register(a, select.EPOLLIN)
        print('I am done,', flush=True)
        both.poll()
    """)
    until(lambda: said_by_kernel(run) == 0.6, "it waits for both")
    os.utime(run.output_path, (time.time() + 60, time.time() + 60))
    assert look(run, LINES, pane) == StillStarting("no sign of readiness yet")
    os.utime(run.output_path, (time.time() - 60, time.time() - 60))
    assert look(run, LINES, pane) == Ready("waits for input (process, silence, 90%)")


@needs_proc
def test_without_a_terminal_no_program_waits_for_input(crew: Crew) -> None:
    alone = crew.run("coder-3.1")
    os.mkfifo(crew.root / "fifo")
    waiting = ["sh", "-c", f"read line < {shlex.quote(str(crew.root / 'fifo'))}"]
    session_process.start(alone.path, waiting, crew.root, crew.env(alone))
    assert readiness.gather_facts(alone, LINES, 1.0, 60.0).idle_signs == ()
    assert isinstance(look(alone, LINES, None), StillStarting)


def test_last_screen_of_a_dead_program_is_in_the_reason(crew: Crew) -> None:
    run, pane = crew.python("print('\\x1b[31mno key\\x1b[0m in the settings'); raise SystemExit(1)")
    ended(run)
    until(lambda: "settings" in pane.capture(), "the screen has it")
    said = "exit 1 before it had read its brief: no key in the settings"
    assert look(run, LINES, pane) == NotReady(NotReadyReason.DEAD, said)


# Attaching


@pytest.fixture
def board(crew: Crew, clock: FakeClock) -> verbs.Crew:
    made = verbs.Crew(crew.paths, clock)
    made.board.create(FIRST + "    runs: 1\n")
    return made


class Seat:
    """A person at a terminal of 100 by 30 who runs a command and reads all that the terminal shows.

    A terminal holds 15 KB that nobody reads; then the command in it waits, and its end with it.
    """

    def __init__(self, words: tuple[str, ...], term: str = "xterm-256color") -> None:
        self.pid, self.hand = pty.fork()
        if not self.pid:
            # Before the command starts: tmux would draw everything twice.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.execvpe(words[0], words, {**os.environ, "TERM": term})
        self.seen = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        # At the end of the client the terminal has no other side any more.
        with suppress(OSError):
            while got := os.read(self.hand, 65536):
                self.seen += got.decode(errors="replace")

    def type(self, keys: str) -> None:
        os.write(self.hand, keys.encode())

    def leave(self, how: signal.Signals | None = None) -> None:
        """Detach, or end the client by a signal."""
        if how is None:
            self.type("\x02d")
        else:
            os.kill(self.pid, how)
        os.waitpid(self.pid, 0)
        self.reader.join()
        os.close(self.hand)


def seated(pane: Pane) -> Seat:
    """A person who has attached to this terminal."""
    seat = Seat(pane.attach_argv)
    until(lambda: pane.screen(0.0).seconds_since_key is not None, "somebody is attached")
    return seat


@pytest.mark.sample(1)
@pytest.mark.parametrize("term", ["xterm", "xterm-256color", "screen"])
def test_a_person_can_attach_type_and_leave_without_ending_programs(crew: Crew, board: verbs.Crew, term: str) -> None:
    run, pane = crew.tui()
    attached = attach(board, "coder-1")
    assert (attached.agent, attached.run) == ("coder-1", "coder-1.1")
    assert attached.command == pane.attach_argv
    seat = Seat(attached.command, term)
    until(lambda: pane.screen(0.0).seconds_since_key is not None, "somebody is attached")
    # A program that takes its terminal over drops what was typed before.
    until(lambda: "for shortcuts" in pane.capture(), "the program reads")
    seat.type("by hand")
    until(lambda: "by hand" in pane.capture(), "it was typed")
    seat.type("\r")
    until(crew.heard, "it was heard")
    assert crew.heard() == ["by hand"]
    assert keyboard.send(pane, "hello", TUI, Clock, limit=0.2) == NotSent("a person is typing into it")
    seat.leave()
    assert isinstance(liveness.read_state(run.path), RunningSession)
    assert keyboard.send(pane, "hello", TUI, Clock) == Sent(1)
    assert attach(board, "coder-1.1", read_only=True).command[-1] == "-r"


def test_attach_to_a_run_without_a_terminal_names_another_way(crew: Crew, board: verbs.Crew) -> None:
    run = crew.run()
    session_process.start(run.path, ["true"], crew.root, crew.env(run))
    with pytest.raises(Refused, match=r"coder-1\.1 has no terminal") as refused:
        attach(board, "coder-1")
    assert refused.value.hint == "liza logs coder-1 -f"
    assert "liza up --tmux" in refused.value.message


def test_down_closes_the_terminals_of_what_it_ended(crew: Crew, board: verbs.Crew) -> None:
    run, pane = crew.start(["sleep", "60"])
    down.down(board)
    assert isinstance(liveness.read_state(run.path), EndedSession)
    assert tmux.find_pane(crew.root, run.run) is None
    until(lambda: processes.identify_process(pane.address.server) is None, "the server has gone")


def test_an_agent_does_not_sit_down_at_a_terminal(board: verbs.Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIZA_RUN", "coder-2.1")
    monkeypatch.setenv("LIZA_ROOT", str(board.paths.root))
    with pytest.raises(Refused, match="this is for a person"):
        attach(board, "coder-1")


def test_terminal_output_is_seen_at_once_and_silence_after_waiting(crew: Crew) -> None:
    _, pane = crew.python("import sys, time\nfor line in sys.stdin: time.sleep(0.2); print('heard', flush=True)")
    with pane.watch_changes() as changed:
        pane.paste("hello")
        changed(LONG)
        pane.press_enter()
        while "heard" not in pane.capture():
            before = time.monotonic()
            changed(LONG)
            assert time.monotonic() - before < LONG / 2
        changed(0.2)  # The end of the line may come after its text.
        began = time.monotonic()
        changed(0.2)
        assert time.monotonic() - began >= 0.1


# A program that asks its terminal for reports, which it does not switch off when it is killed.
REPORTS = "print('\\x1b[?1004h\\x1b[?1003h\\x1b[?2004hup', flush=True)\nimport time\ntime.sleep(600)"


@dataclass
class Watched:
    """A person at the terminal of a program that was killed, and another agent at work in the same server."""

    run: RunDir
    pane: Pane
    other: RunDir
    seat: Seat


@pytest.fixture
def watched(crew: Crew) -> Iterator[Watched]:
    run, pane = crew.start([sys.executable, "-c", REPORTS])
    other, _ = crew.start(["sleep", "60"], "coder-2.1")
    until(lambda: "up" in pane.capture(), "it came up")
    seat = seated(pane)
    yield Watched(run, pane, other, seat)
    seat.leave(signal.SIGKILL)
    assert isinstance(liveness.read_state(other.path), RunningSession), "the other agent lost its terminal"


@pytest.mark.campaign
def test_a_person_at_an_ended_session_is_moved_to_another(crew: Crew, watched: Watched) -> None:
    killed(watched.run, shim=True)
    later, pane = crew.start([sys.executable, "-c", "print('the next one', flush=True)\ninput()"], "coder-1.2")
    until(lambda: pane.screen(0.0).seconds_since_key is not None, "the person is at the next one")
    until(lambda: "the next one" in watched.seat.seen, "the person sees it")
    assert not pane.screen(0.0).was_visited, "who was taken along has typed nothing"
    assert pane.address.server == watched.pane.address.server
    assert isinstance(liveness.read_state(later.path), RunningSession)
    assert tmux.find_pane(crew.root, "coder-1.1") is None
    watched.seat.type("\x02d")


def test_leaving_a_killed_programs_terminal_ends_no_other_terminal(watched: Watched) -> None:
    killed(watched.run)
    ended(watched.run)
    until(watched.pane.is_shim_dead, "the last screen")
    watched.seat.type("\x02d")
    until(lambda: watched.pane.screen(0.0).seconds_since_key is None, "the person has left")


def killed(run: RunDir, *, shim: bool = False) -> None:
    """End the program of a run at once, its shim before it if that is wanted."""
    living = liveness.read_state(run.path)
    assert isinstance(living, RunningSession)
    for who in (living.shim, living.child) if shim else (living.child,):
        with suppress(ProcessLookupError):
            os.kill(who.pid, signal.SIGKILL)
    until(lambda: not processes.may_be_alive(living.child), "it is dead")
