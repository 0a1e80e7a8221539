"""A person is told elsewhere: `liza watch --notify`, and `liza up` with `config.notify`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.alarms import notices
from liza.alarms.notices import NoticeTarget
from liza.system import locks
from liza.system.locks import is_flock_held
from tests.conftest import worktree_of
from tests.edges.alarms.test_notices import Receiver
from tests.edges.alarms.test_notices import receiver as receiver
from tests.journeys.crews import BIN, LIMIT, Crew, started


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    with started(tmp_path, poll_interval=1) as crew:
        yield crew


def block(crew: Crew, question: str) -> None:
    crew.prepare("block", "unclear", "--ask", question, cwd=worktree_of(crew.root, "t1"))


def wait_received(crew: Crew, receiver: Receiver, count: int) -> None:
    crew.wait(lambda _: len(receiver.messages) == count, f"{count} messages")


@pytest.mark.campaign
def test_a_blocked_task_notifies_once_and_again_after_an_answer(crew: Crew, receiver: Receiver) -> None:
    with (crew.notes / "watch.log").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "liza"), "watch", "--notify", receiver.url], cwd=crew.root, stdout=out, stderr=out
        )
    crew.children.append(process)
    crew.add("t1")
    for count, question in enumerate(("which port?", "which host?"), 1):
        crew.prepare("claim", "t1", "--agent", "coder-1")
        block(crew, question)
        wait_received(crew, receiver, count)
        assert f"asks: {question}\nNext: liza answer t1" in receiver.messages[-1]
        crew.prepare("answer", "t1", "8080")
        # An alarm that returns before the watch has seen the answer has not cleared.
        record = notices.record_path(crew.paths, NoticeTarget(receiver.url).key)
        crew.wait(lambda _, record=record: b"t1" not in record.read_bytes(), "the end of the alarm")
    process.terminate()
    assert process.wait(LIMIT) is not None
    assert receiver.count == 2
    assert "hidden" not in (crew.notes / "watch.log").read_text()


BLOCKS = 'liza block unclear --ask "which port?"\n'
ALONE = ("--planners", "0", "--reviewers", "0")


def target_file(crew: Crew, receiver: Receiver) -> str:
    path = crew.notes / "url"
    path.write_text(receiver.url)
    return f"file:{path}"


@pytest.mark.campaign
def test_up_notifies_only_targets_that_a_person_confirmed(crew: Crew, receiver: Receiver) -> None:
    seen = crew.notes / "seen"
    command = f'echo "$LIZA_ALARM_KIND" >> {seen}'
    link = "https://box.tailnet.ts.net"
    crew.configure(notify={"targets": [target_file(crew, receiver)], "exec": command, "link": link})
    crew.add("t1")
    with (crew.notes / "up.log").open("ab") as out:
        words = [str(BIN / "liza"), "up", *ALONE, "--program", crew.script("agent", BLOCKS)]
        process = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(process)
    wait_received(crew, receiver, 1)
    crew.wait(lambda _: seen.exists(), "the command")
    assert receiver.messages[0].endswith(f"\n{link}/tasks/t1")
    process.terminate()
    assert process.wait(LIMIT) == 0
    assert seen.read_text() == "blocked\n"
    assert "alarms that need you are sent to file:" in (crew.notes / "up.log").read_text()


@pytest.mark.campaign
def test_a_detached_crew_sends_notices_and_leaves_no_process(crew: Crew, receiver: Receiver) -> None:
    crew.configure(notify={"targets": [target_file(crew, receiver)]})
    crew.add("t1")
    crew.liza("up", "-d", *ALONE, "--program", crew.script("agent", BLOCKS))
    wait_received(crew, receiver, 1)
    lock = notices.board_lock(crew.paths)
    assert is_flock_held(lock)
    crew.liza("down")
    crew.wait(lambda _: not is_flock_held(lock), "the end of the process that sends")


@pytest.mark.campaign
def test_a_killed_notice_process_restarts_and_loses_no_alarm(crew: Crew, receiver: Receiver) -> None:
    target = target_file(crew, receiver)
    crew.configure(notify={"targets": [target]})
    crew.add("t1")
    crew.liza("up", "-d", *ALONE, "--program", crew.script("agent", BLOCKS))
    wait_received(crew, receiver, 1)
    # A kill before the record of the delivery would repeat it.
    key = NoticeTarget(target).key
    crew.wait(lambda _: notices.read_notice_record(crew.paths, key).sent, "the record of the first message")
    lock = notices.board_lock(crew.paths)
    pid = locks.find_holder(lock)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    crew.add("t2")
    wait_received(crew, receiver, 2)
    assert locks.find_holder(lock) not in (None, pid)
    crew.liza("down")
    crew.wait(lambda _: not is_flock_held(lock), "the end of the process that sends")
    assert receiver.count == 2


def test_a_notice_target_written_by_an_agent_is_an_alarm(crew: Crew, receiver: Receiver) -> None:
    text = crew.paths.state.read_text()
    planted = f'config:\n  notify: {{exec: "touch {crew.notes}/planted hidden", targets: [{receiver.url}]}}\n'
    assert "\nconfig:\n" in text
    crew.paths.state.write_text(text.replace("config:\n", planted, 1))
    kinds = {row["kind"]: row for row in crew.json("status")["alerts"]}
    assert "unconfirmed_setting" in kinds
    assert "hidden" not in str(kinds)
    assert "hidden" not in crew.run("doctor").stdout
    assert "liza config get notify" in kinds["unconfirmed_setting"]["message"]
    assert "planted hidden" in crew.run("config", "get", "notify").stderr
    assert "neither --notify, --exec nor config.notify" in crew.liza("watch", "--try", code=2)
    assert not (crew.notes / "planted").exists()


def test_a_person_sets_the_link_of_notices_and_an_agent_cannot(crew: Crew, receiver: Receiver) -> None:
    crew.liza("config", "set", "notify.link", "http://127.0.0.1:8420")
    crew.liza("watch", "--notify", receiver.url, "--try")
    assert receiver.messages[-1].endswith("\nhttp://127.0.0.1:8420/")
    refused = crew.run("config", "set", "notify.link", "https://me:hidden@box")
    assert refused.returncode == 2
    assert "notify.link" in refused.stderr
    assert "hidden" not in refused.stderr
    text = crew.paths.state.read_text()
    crew.paths.state.write_text(text.replace("http://127.0.0.1:8420", "https://evil.example", 1))
    crew.liza("watch", "--notify", receiver.url, "--try")
    assert receiver.messages[-1].endswith("\nhttp://127.0.0.1:8420/")
    assert "unconfirmed_setting" in {row["kind"] for row in crew.json("status")["alerts"]}


def test_watch_try_reports_each_target_and_refuses_addresses_on_board(crew: Crew, receiver: Receiver) -> None:
    broken = crew.run("watch", "--notify", receiver.url, "--exec", "exit 3", "--try")
    assert broken.returncode == 5
    assert broken.stdout == "json://…: sent\nexec: the command failed with exit status 3\n"
    assert "hidden" not in broken.stdout + broken.stderr
    with pytest.raises(AssertionError, match=r"notify\.targets") as refused:
        crew.configure(notify={"targets": [receiver.url]})
    assert "hidden" not in str(refused.value)
