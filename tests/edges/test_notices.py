"""Notices to real receivers: HTTP on loopback through apprise, a D-Bus service, a shell command, and a kill."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from liza.alarms import deliveries
from liza.alarms.child_run import ChildRunner
from liza.alarms.current_alarms import find_alarms
from liza.alarms.deliveries import Limits
from liza.alarms.notice_senders import NoticeSenders, Timing
from liza.alarms.notice_targets import NoticeTarget, require_target
from liza.alarms.rules.notice_rules import MAX_TRIES, build_notice
from liza.crew.crew import Crew
from liza.model.alarm_kinds import Alarm
from liza.model.errors import Missing, UsageError
from liza.model.quiet_hours import parse_quiet_hours
from liza.tasks.evidence import gather_evidence
from tests.edges.test_slots_place import begun

ASKS = Alarm("blocked", "t1", "t1 is blocked and asks: which port?", 'liza answer t1 "…"')
WAITS = Alarm("merge_held", "t2", "t2 is approved and held", "liza queue release t2")
QUICK = Timing(first_delay=0.0, idle=0.2, lock=0.1)
LIMIT = 30.0


class Receiver:
    """An HTTP server of a service. ``status``: its answer; None: it closes the connection, 0: it never answers."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.messages: list[str] = []
        self.count = 0
        self.closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receiver.count += 1
                if receiver.status is None:
                    self.close_connection = True
                    return
                if receiver.status == 0:
                    receiver.closing.wait(LIMIT)
                    return
                if receiver.status == 200:
                    receiver.messages.append(body["message"])
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"json://user:hidden-word@127.0.0.1:{self.server.server_port}/hidden-path"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.closing.set()
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def crew(repo: Path) -> Crew:
    return begun(repo)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def sending(crew: Crew, *texts: str, timing: Timing = QUICK, **more: Any) -> Iterator[NoticeSenders]:
    with NoticeSenders(crew, [NoticeTarget(text) for text in texts], timing=timing, **more) as senders:
        yield senders


def failures(crew: Crew) -> list[Alarm]:
    state = crew.board.read()
    return [alarm for alarm in find_alarms(crew, state, gather_evidence(crew, state)) if alarm.kind == "notices_failed"]


def sent_to(crew: Crew, text: str) -> tuple[tuple[str, str], ...]:
    return deliveries.read_notice_record(crew.paths, NoticeTarget(text).key).sent


@pytest.mark.campaign
def test_an_alarm_reaches_the_receiver_once_also_across_commands(crew: Crew, receiver: Receiver) -> None:
    with sending(crew, receiver.url) as senders:
        senders.update([ASKS])
        wait_until(lambda: sent_to(crew, receiver.url))
        senders.update([ASKS])
    with sending(crew, receiver.url) as senders:
        senders.update([ASKS, WAITS])
        wait_until(lambda: len(sent_to(crew, receiver.url)) == 2)
    assert receiver.messages == [f"{ASKS.message}\nNext: {ASKS.next}", f"{WAITS.message}\nNext: {WAITS.next}"]
    written = "".join(path.name + path.read_text() for path in crew.paths.notices.iterdir())
    assert "hidden" not in written


@pytest.mark.campaign
def test_two_commands_with_the_same_target_send_it_once(crew: Crew, receiver: Receiver) -> None:
    with sending(crew, receiver.url) as first, sending(crew, receiver.url) as second:
        first.update([ASKS])
        second.update([ASKS])
        wait_until(lambda: sent_to(crew, receiver.url))
        time.sleep(0.3)
    assert receiver.count == 1


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "the service answered HTTP 500"),
        (None, "the service gave no answer"),
        (0, "the service took longer than 2 s and was ended"),
    ],
)
def test_a_target_that_fails_is_an_alarm_until_it_works_and_the_others_go_on(
    crew: Crew, receiver: Receiver, tmp_path: Path, status: int | None, reason: str
) -> None:
    seen = tmp_path / "seen"
    command = NoticeTarget(f'echo "$LIZA_ALARM_ABOUT" >> {seen}', is_command=True)
    receiver.status = status
    timing = Timing(first_delay=0.0, idle=0.2, limits=Limits(service=2.0 if status == 0 else 30.0))
    with NoticeSenders(crew, [NoticeTarget(receiver.url), command], timing=timing) as senders:
        senders.update([ASKS])
        wait_until(lambda: failures(crew))
        (failure,) = failures(crew)
        assert failure.about == "json://…"
        assert reason in failure.message
        assert "hidden" not in str(failure)
        wait_until(seen.exists)
        receiver.status = 200
        wait_until(lambda: sent_to(crew, receiver.url))
        assert failures(crew) == []
    # A sender that is ended at its limit may have delivered before.
    assert len(receiver.messages) == 1 or status == 0
    assert seen.read_text() == "t1\n"


@pytest.mark.campaign
def test_what_was_set_aside_is_sent_after_a_trial_that_succeeds(crew: Crew, receiver: Receiver) -> None:
    receiver.status = 500
    with sending(crew, receiver.url) as senders:
        senders.update([ASKS])
        wait_until(lambda: any("5 times in a row" in alarm.message for alarm in failures(crew)))
        receiver.status, count = 200, receiver.count
        time.sleep(0.5)
        assert receiver.count == count == MAX_TRIES
        deliveries.forget_failure(crew.paths, NoticeTarget(receiver.url).key)
        wait_until(lambda: sent_to(crew, receiver.url))
    assert failures(crew) == []


@pytest.mark.campaign
def test_the_end_of_a_command_does_not_wait_for_a_receiver_that_hangs(crew: Crew, receiver: Receiver) -> None:
    receiver.status = 0
    with sending(crew, receiver.url) as senders:
        senders.update([ASKS])
        wait_until(lambda: receiver.count)
        begin = time.monotonic()
    assert time.monotonic() - begin < 5
    assert failures(crew) == []


@pytest.mark.campaign
def test_quiet_hours_end_with_one_digest(crew: Crew, receiver: Receiver) -> None:
    hour = crew.clock.now().astimezone().hour
    quiet = parse_quiet_hours(f"{hour:02}:00-{(hour + 2) % 24:02}:00")
    with sending(crew, receiver.url, quiet=quiet) as senders:
        senders.update([ASKS, WAITS])
        path = deliveries.record_path(crew.paths, NoticeTarget(receiver.url).key)
        wait_until(lambda: path.exists() and b"held" in path.read_bytes())
    assert receiver.count == 0
    with sending(crew, receiver.url) as senders:
        senders.update([ASKS, WAITS])
        wait_until(lambda: sent_to(crew, receiver.url))
    assert receiver.count == 1
    assert receiver.messages[0].splitlines() == [
        "2 alarms wait for you:",
        f"- {ASKS.message}; next: {ASKS.next}",
        f"- {WAITS.message}; next: {WAITS.next}",
        "Next: liza status",
    ]


def run_once(command: str, alarm: Alarm, root: Path, seconds: float = 20.0) -> str | None:
    target = NoticeTarget(command, is_command=True)
    return deliveries.deliver(target, build_notice(alarm), root, ChildRunner(), Limits(command=seconds))


def test_a_command_gets_the_alarm_in_its_environment_and_on_stdin_and_never_as_shell_text(tmp_path: Path) -> None:
    message = 'asks $(touch planted) "; touch planted; `touch planted`'
    reads = 'printf "%s\\n" "$LIZA_ALARM_KIND" "$LIZA_ALARM_ABOUT" "$LIZA_ALARM_MESSAGE" "$LIZA_ALARM_NEXT" > env'
    assert run_once(f"{reads}; cat > stdin", Alarm("blocked", "t1", message, "liza answer t1"), tmp_path) is None
    assert (tmp_path / "env").read_text().splitlines() == ["blocked", "t1", message, "liza answer t1"]
    row = {"kind": "blocked", "about": "t1", "message": message, "next": "liza answer t1"}
    assert json.loads((tmp_path / "stdin").read_bytes()) == {**row, "alarms": [row]}
    assert not (tmp_path / "planted").exists()


def test_failing_command_gives_a_reason_and_a_hanging_one_ends(tmp_path: Path) -> None:
    assert run_once("echo no route >&2; exit 3", ASKS, tmp_path) == "the command failed with exit status 3: no route"
    assert run_once("echo \0", ASKS, tmp_path) == "the sender could not be started: a text has a NUL"
    begin = time.monotonic()
    assert run_once("sleep 50 & echo $! > pid; wait", ASKS, tmp_path, 0.5) == (
        "the command took longer than 0.5 s and was ended"
    )
    assert time.monotonic() - begin < 5
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: _ended(pid))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("kill -9 $$", "the command was ended by signal 9"),
        ("yes >&2 & sleep 0.2; exit 3", "the command failed with exit status 3: y"),
        ("setsid sleep 5 & exit 0", None),
        ("exec 2>&-; sleep 0.1; exit 4", "the command failed with exit status 4"),
        ("exec <&-; exec 2>&-; exec >&-; trap '' TERM; sleep 50", "the command took longer than 1 s and was ended"),
        # It waits for all of its children, and has none.
        (f"exec {sys.executable} -c 'import os; os.wait()'", "ChildProcessError: [Errno 10] No child processes"),
    ],
)
def test_each_end_of_a_command_is_seen(tmp_path: Path, command: str, reason: str | None) -> None:
    told = run_once(command, ASKS, tmp_path, 1.0)
    assert told == reason or (reason and told and told.endswith(reason))


def test_a_command_that_reads_nothing_ends_although_its_input_is_longer_than_a_pipe(tmp_path: Path) -> None:
    runner = ChildRunner()
    data = b"x" * (1 << 20)
    assert runner.run(["/bin/sh", "-c", "sleep 0.1; exit 5"], data, 20.0, tmp_path).code == 5
    assert runner.run(["/bin/sh", "-c", 'test "$(wc -c)" -eq 1048576'], data, 20.0, tmp_path).code == 0


def test_the_error_output_of_a_command_needs_neither_the_disk_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints 32 MiB; a temporary file may have 1 MiB, and the end of the output is still read."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        told = run_once("head -c 33554432 /dev/zero >&2; echo >&2; echo no route >&2; exit 3", ASKS, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert told == "the command failed with exit status 3: no route"


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("nonsense-with-a-secret", UsageError, "not desktop, env:NAME, file:PATH or a URL"),
        ("file:relative", UsageError, "absolute path"),
        ("env:LIZA_TEST_NO_URL", Missing, "the environment variable LIZA_TEST_NO_URL has no URL"),
        ("file:/nonexistent/url", Missing, "the address of file:/nonexistent/url cannot be read"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_at_the_start(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as refused:
        require_target(NoticeTarget(text))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("scheme", "other"), [("http", "json"), ("https", "jsons")])
def test_a_plain_web_address_is_refused_with_the_scheme_to_write_instead(scheme: str, other: str) -> None:
    with pytest.raises(Missing, match=f"write {other}:// instead of {scheme}://") as refused:
        deliveries.check_target(NoticeTarget(f"{scheme}://127.0.0.1/hidden-word"), ChildRunner(), Limits())
    assert "hidden-word" not in str(refused.value)


@pytest.mark.campaign
def test_a_url_that_apprise_does_not_accept_is_refused_without_showing_it() -> None:
    with pytest.raises(Missing, match="carrier-pigeon://…: apprise does not accept this URL") as refused:
        deliveries.check_target(NoticeTarget("carrier-pigeon://hidden-word"), ChildRunner(), Limits())
    assert "hidden" not in str(refused.value)


@pytest.mark.campaign
def test_the_address_can_be_in_a_variable_or_a_file(
    crew: Crew, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIZA_TEST_URL", receiver.url)
    (tmp_path / "url").write_text(f"{receiver.url}\n")
    texts = "env:LIZA_TEST_URL", f"file:{tmp_path / 'url'}"
    with sending(crew, *texts) as senders:
        senders.update([ASKS])
        wait_until(lambda: all(sent_to(crew, text) for text in texts))
    assert len(receiver.messages) == 2


KILLED_SENDER = """
import sys, time
from pathlib import Path
from liza.crew.crew import find_crew
from liza.alarms.notice_senders import NoticeSenders
from liza.alarms.notice_targets import NoticeTarget
from liza.model.alarm_kinds import Alarm
with NoticeSenders(find_crew(Path(sys.argv[1])), [NoticeTarget(sys.argv[2])]) as senders:
    senders.update([Alarm("blocked", "t1", "asks", "liza answer t1")])
    time.sleep(30)
"""


@pytest.mark.campaign
def test_a_kill_between_delivery_and_record_repeats_one_notice_at_most_once(crew: Crew, receiver: Receiver) -> None:
    words = [sys.executable, "-c", KILLED_SENDER, str(crew.paths.root), receiver.url]
    killed = subprocess.run(words, env={**os.environ, "LIZA_FAULT": "notices.sent"}, timeout=60)
    assert killed.returncode == -9
    assert receiver.count == 1
    alarm = Alarm("blocked", "t1", "asks", "liza answer t1")
    for _ in range(2):
        with sending(crew, receiver.url) as senders:
            senders.update([alarm])
            wait_until(lambda: sent_to(crew, receiver.url))
    assert receiver.count == 2


KILLED_AT_WORK = """
import sys
from pathlib import Path
from liza.alarms.child_run import ChildRunner
ChildRunner().run(["/bin/sh", "-c", sys.argv[1]], b"", 60.0, Path("/"))
"""


@pytest.mark.parametrize("fault", ["", "spawned.notice"])
def test_a_kill_of_the_sender_ends_its_command_with_all_of_its_group(tmp_path: Path, fault: str) -> None:
    command = f"trap '' TERM HUP; sleep 50 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait"
    words = [sys.executable, "-c", KILLED_AT_WORK, command]
    sender = subprocess.Popen(words, env={**os.environ, "LIZA_FAULT": fault})
    if not fault:
        wait_until((tmp_path / "pids").exists)
        sender.kill()
    assert sender.wait(LIMIT) == -9
    wait_until(lambda: not _running_with(str(tmp_path)))
    if (tmp_path / "pids").exists():
        wait_until(lambda: all(_ended(int(pid)) for pid in (tmp_path / "pids").read_text().split()))


def _running_with(text: str) -> list[str]:
    """Command lines of other processes that have this text."""
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.parent.name != str(os.getpid()) and text.encode() in _read(path)
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


SERVICE = """
import sys
from jeepney import DBusAddress, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
connection = open_dbus_connection(bus="SESSION")
connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.Notifications"))
print("ready", flush=True)
while True:
    call = connection.receive()
    if call.header.fields.get(3) == "Notify":
        print(repr(call.body), flush=True)
        connection.send(new_method_return(call, "u", (1,)))
"""
DESKTOP = """
import subprocess, sys
from pathlib import Path
service = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
service.stdout.readline()
from liza.alarms import deliveries
from liza.alarms.child_run import ChildRunner
from liza.alarms.deliveries import Limits
from liza.alarms.notice_targets import NoticeTarget, require_target
from liza.model.alarm_kinds import Alarm
from liza.alarms.rules.notice_rules import build_notice
target = NoticeTarget("desktop")
require_target(target)
alarm = Alarm("blocked", "t1", "asks: is 'a' < \\"b\\" \\\\ <b>bold</b> & so?", "liza answer t1")
print(deliveries.deliver(target, build_notice(alarm), Path("/x/shop"), ChildRunner(), Limits()))
print(service.stdout.readline())
service.kill()
"""


@pytest.mark.campaign
@pytest.mark.needs("dbus-run-session", "dbus-daemon", "gdbus")
def test_a_real_service_of_the_desktop_shows_the_text_and_no_markup_of_an_agent() -> None:
    """Through gdbus: the PATH of tests has no notify-send."""
    words = ["dbus-run-session", "--", sys.executable, "-c", DESKTOP, SERVICE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, shown = done.stdout.splitlines()[:2]
    assert said == "None"
    text = "asks: is 'a' &lt; \"b\" \\ &lt;b&gt;bold&lt;/b&gt; &amp; so?\nNext: liza answer t1"
    assert shown == repr(("liza", 0, "", "Liza shop: blocked", text, [], {}, -1))


def test_notify_send_is_preferred_and_gets_the_text_as_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the test in its stead: it writes down its arguments."""
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s|" "$word"; done > {tmp_path}/words\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    alarm = Alarm("blocked", "t1", "--icon=x <b>", "liza answer t1")
    assert deliveries.deliver(NoticeTarget("desktop"), build_notice(alarm), tmp_path, ChildRunner(), Limits()) is None
    assert (tmp_path / "words").read_text() == (
        f"--app-name=liza|--|Liza {tmp_path.name}: blocked|--icon=x &lt;b&gt;\nNext: liza answer t1|"
    )


def test_without_a_desktop_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="neither notify-send nor gdbus is installed"):
        require_target(NoticeTarget("desktop"))
    (tmp_path / "gdbus").write_text("#!/bin/sh\n")
    (tmp_path / "gdbus").chmod(0o755)
    with pytest.raises(Missing, match="DBUS_SESSION_BUS_ADDRESS is not set"):
        require_target(NoticeTarget("desktop"))
