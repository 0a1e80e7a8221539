"""Notices to real receivers: HTTP on loopback through apprise, a shell command, the desktop, and a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from liza.alarms import notice_sender as notice_process
from liza.alarms import notices
from liza.alarms.current_alarms import find_alarms
from liza.alarms.notice_sender import deliver, send_new
from liza.alarms.notices import NoticePlan, NoticeProcess, NoticeTarget, require_target
from liza.alarms.rules import notice_rules
from liza.alarms.rules.notice_rules import PageLinks, build_notice
from liza.crew.crew import Crew
from liza.model.alarm_table import Alarm
from liza.model.errors import Missing, UsageError
from liza.tasks.evidence import gather_evidence
from tests.conftest import until
from tests.edges.git.test_slots_place import begun

ASKS = Alarm("blocked", "t1", "t1 is blocked and asks: which port?", 'liza answer t1 "…"')
WAITS = Alarm("merge_held", "t2", "t2 is approved and held", "liza queue release t2")
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
    crew = begun(repo)
    crew.paths.notices.mkdir(exist_ok=True)
    return crew


def failures(crew: Crew) -> list[Alarm]:
    state = crew.board.read()
    return [alarm for alarm in find_alarms(crew, state, gather_evidence(crew, state)) if alarm.kind == "notices_failed"]


def sent_to(crew: Crew, text: str) -> tuple[tuple[str, str], ...]:
    return notices.read_notice_record(crew.paths, NoticeTarget(text).key).sent


def test_an_alarm_reaches_the_receiver_once_until_it_clears(crew: Crew, receiver: Receiver) -> None:
    target = NoticeTarget(receiver.url)
    for present in ([ASKS], [ASKS], [ASKS, WAITS], [WAITS], [ASKS, WAITS]):
        send_new(crew, target, present)
    asks, waits = (f"{alarm.message}\nNext: {alarm.next}" for alarm in (ASKS, WAITS))
    assert receiver.messages == [asks, waits, asks]
    written = "".join(path.name + path.read_text() for path in crew.paths.notices.iterdir())
    assert "hidden" not in written


def test_nothing_is_sent_in_quiet_hours(crew: Crew, receiver: Receiver) -> None:
    target = NoticeTarget(receiver.url)
    send_new(crew, target, [ASKS], is_quiet=True)
    assert receiver.count == 0
    send_new(crew, target, [ASKS])
    assert receiver.count == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "the service answered HTTP 500"),
        (None, "the service gave no answer"),
        (0, "the service took longer than 2 s and was ended"),
    ],
)
def test_a_target_that_fails_is_an_alarm_until_it_works(
    crew: Crew, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, status: int | None, reason: str
) -> None:
    monkeypatch.setattr(notice_process, "SERVICE_LIMIT", 2.0 if status == 0 else 30.0)
    target, receiver.status = NoticeTarget(receiver.url), status
    send_new(crew, target, [ASKS])
    (failure,) = failures(crew)
    assert failure.about == "json://…"
    assert reason in failure.message
    assert "hidden" not in str(failure)
    receiver.status, count = 200, receiver.count
    send_new(crew, target, [ASKS])
    assert receiver.count == count
    monkeypatch.setattr(notice_rules, "RETRY_AFTER", notice_rules.RETRY_AFTER * 0)
    send_new(crew, target, [ASKS])
    assert failures(crew) == []
    assert len(receiver.messages) == 1


def test_a_trial_prints_the_result_of_each_target(crew: Crew, receiver: Receiver) -> None:
    plan = NoticePlan((NoticeTarget(receiver.url), NoticeTarget("exit 3", is_command=True)), is_trial=True)
    lines = NoticeProcess(crew.paths, os.environ, plan).run_trial()
    assert next(lines) == "json://…: sent"
    assert next(lines) == "exec: the command failed with exit status 3"
    with pytest.raises(Missing, match="not every target"):
        next(lines)


def run_once(command: str, alarm: Alarm, root: Path) -> str | None:
    return deliver(NoticeTarget(command, is_command=True), build_notice(alarm), root)


def test_a_notice_command_never_gets_the_alarm_as_shell_text(tmp_path: Path) -> None:
    message = 'asks $(touch planted) "; touch planted; `touch planted`'
    reads = 'printf "%s\\n" "$LIZA_ALARM_KIND" "$LIZA_ALARM_ABOUT" "$LIZA_ALARM_MESSAGE" "$LIZA_ALARM_NEXT" > env'
    assert run_once(f"{reads}; cat > stdin", Alarm("blocked", "t1", message, "liza answer t1"), tmp_path) is None
    assert (tmp_path / "env").read_text().splitlines() == ["blocked", "t1", message, "liza answer t1"]
    row = {"kind": "blocked", "about": "t1", "message": message, "next": "liza answer t1", "link": ""}
    assert json.loads((tmp_path / "stdin").read_bytes()) == {**row, "alarms": [row]}
    assert not (tmp_path / "planted").exists()


def test_failing_command_gives_a_reason_and_a_hanging_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_once("echo no route >&2; exit 3", ASKS, tmp_path) == "the command failed with exit status 3: no route"
    assert run_once("echo \0", ASKS, tmp_path) == "the sender could not be started: a text has a NUL"
    assert run_once("kill -9 $$", ASKS, tmp_path) == "the command was ended by signal 9"
    monkeypatch.setattr(notice_process, "COMMAND_LIMIT", 2.0)
    assert run_once("sleep 600 & echo $! > pid; wait", ASKS, tmp_path) == (
        "the command took longer than 2 s and was ended"
    )
    pid = int((tmp_path / "pid").read_text())
    until(lambda: _ended(pid), "the end of the command")


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
def test_an_unusable_notice_target_is_refused_at_the_start(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as refused:
        require_target(NoticeTarget(text), {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["http", "carrier-pigeon"])
def test_the_alarm_of_a_refused_apprise_url_hides_the_url(crew: Crew, scheme: str) -> None:
    plan = NoticePlan((NoticeTarget(f"{scheme}://127.0.0.1/hidden-word"),))
    notice_process.check_urls(crew, plan)
    (failure,) = failures(crew)
    assert f"{scheme}://…: apprise does not accept this URL; to send JSON by POST, write json://" in failure.message
    assert "hidden-word" not in str(failure)


def test_the_address_can_be_in_a_variable_or_a_file(
    crew: Crew, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIZA_TEST_URL", receiver.url)
    (tmp_path / "url").write_text(f"{receiver.url}\n")
    for text in ("env:LIZA_TEST_URL", f"file:{tmp_path / 'url'}"):
        send_new(crew, NoticeTarget(text), [ASKS])
        assert sent_to(crew, text)
    assert len(receiver.messages) == 2


KILLED_SENDER = """
import sys
from pathlib import Path
from liza.crew.crew import find_crew
from liza.alarms.notice_sender import send_new
from liza.alarms.notices import NoticeTarget
from liza.model.alarm_table import Alarm
send_new(find_crew(Path(sys.argv[1])), NoticeTarget(sys.argv[2]), [Alarm("blocked", "t1", "asks", "liza answer t1")])
"""


def test_a_kill_before_the_record_repeats_a_notice_only_once(crew: Crew, receiver: Receiver) -> None:
    words = [sys.executable, "-c", KILLED_SENDER, str(crew.paths.root), receiver.url]
    killed = subprocess.run(words, env={**os.environ, "LIZA_FAULT": "notices.sent"}, timeout=60)
    assert killed.returncode == -9
    assert receiver.count == 1
    for _ in range(2):
        send_new(crew, NoticeTarget(receiver.url), [Alarm("blocked", "t1", "asks", "liza answer t1")])
    assert receiver.count == 2


@pytest.mark.campaign
def test_the_process_that_sends_ends_with_its_parent(crew: Crew, receiver: Receiver) -> None:
    words = [sys.executable, "-P", "-m", "liza.alarms.notice_sender", str(crew.paths.root)]
    plan = b'{"targets": [{"text": "desktop"}]}\n'
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(plan)
    process.stdin.flush()
    time.sleep(1.0)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(LIMIT) == 0


def test_a_delivered_notice_has_the_address_of_its_page(crew: Crew, receiver: Receiver) -> None:
    links = PageLinks("https://box.tailnet.ts.net", tasks=("t1",))
    send_new(crew, NoticeTarget(receiver.url), [ASKS], links)
    assert receiver.messages == [f"{ASKS.message}\nNext: {ASKS.next}\nhttps://box.tailnet.ts.net/tasks/t1"]
    command = NoticeTarget('printf %s "$LIZA_ALARM_LINK" > link; cat > stdin', is_command=True)
    send_new(crew, command, [ASKS], links)
    link = (crew.paths.root / "link").read_text()
    assert link == json.loads((crew.paths.root / "stdin").read_bytes())["link"] == "https://box.tailnet.ts.net/tasks/t1"


def test_notify_send_gets_the_text_as_arguments_without_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the test in its stead: it writes down its arguments."""
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nfor word in "$@"; do printf "%s|" "$word"; done > {tmp_path}/words\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    alarm = Alarm("blocked", "t1", "--icon=x <b>", "liza answer t1")
    assert deliver(NoticeTarget("desktop"), build_notice(alarm), tmp_path) is None
    assert (tmp_path / "words").read_text() == (
        f"--app-name=liza|--|Liza {tmp_path.name}: blocked|--icon=x &lt;b&gt;\nNext: liza answer t1|"
    )


def test_without_a_desktop_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="notify-send is not installed"):
        require_target(NoticeTarget("desktop"), {})
    (tmp_path / "notify-send").write_text("#!/bin/sh\n")
    (tmp_path / "notify-send").chmod(0o755)
    with pytest.raises(Missing, match="DBUS_SESSION_BUS_ADDRESS is not set"):
        require_target(NoticeTarget("desktop"), {"XDG_RUNTIME_DIR": str(tmp_path)})
