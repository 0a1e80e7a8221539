"""What an agent prints, followed while it prints it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.edges.project.test_secrets import SECRETS
from tests.journeys.crews import BIN, LIMIT, Crew

SECRET = SECRETS["github"]


@contextmanager
def followed(crew: Crew) -> Iterator[subprocess.Popen[str]]:
    words = [str(BIN / "liza"), "logs", "coder-1", "-f"]
    child = subprocess.Popen(words, cwd=crew.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=LIMIT)


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_a_secret_printed_in_two_parts_is_redacted_for_followers(
    crew: Crew,
) -> None:
    crew.gate("begun")
    crew.gate("on")
    crew.add("t1")
    program = crew.script(
        "agent",
        f"""
        echo first
        printf 'key: {SECRET[:12]}'
        cat "$NOTES/begun" "$NOTES/on" > /dev/null
        printf '{SECRET[12:20]}'; sleep 1; printf '{SECRET[20:]} é\\n'
        printf 'the last one'
        liza exit 1 > /dev/null
        """,
    )
    crew.agent("coder-1", program)
    crew.open_gate("begun")
    with followed(crew) as child:
        assert line(child) == "first\n"
        crew.open_gate("on")
        assert line(child) == "key: [redacted: GitHub token] é\n"
        assert line(child).startswith("the last one")


def test_each_following_command_ends_with_its_reader(crew: Crew) -> None:
    crew.add("t1")
    followers = [("logs", "-f"), ("history", "-f"), ("watch",), ("status", "--watch")]
    reading, writing = os.pipe()
    words = [[str(BIN / "liza"), *follower] for follower in followers]
    children = [subprocess.Popen(word, cwd=crew.root, stdout=writing, stderr=writing) for word in words]
    os.close(writing)
    shown = os.read(reading, 1)
    os.close(reading)
    try:
        # Nothing happens on the board: none of them has another line to print.
        assert (bool(shown), [child.wait(timeout=LIMIT) for child in children]) == (True, [141] * len(children))
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_logs_distinguish_silent_programs_from_lost_logs(crew: Crew) -> None:
    crew.add("t1")
    crew.agent("coder-1", crew.script("agent", "exit 3"))
    crew.wait(lambda _: (crew.paths.run("coder-1.1") / "exit.json").exists())
    told = crew.run("logs", "coder-1.1")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "coder-1.1 printed nothing; exit 3\n")
    crew.prepare("down")
    shutil.rmtree(crew.paths.runs)
    assert "the log of coder-1.1 is gone" in crew.liza("logs", "coder-1.1", code=1)
    gone = crew.liza("logs", "coder-1", code=1)
    assert "the logs of coder-1 are gone" in gone
    assert "no program was started" in crew.liza("logs", "coder-1.99", code=1)


def test_a_pipe_in_place_of_output_stops_no_logs(crew: Crew) -> None:
    crew.add("t1")
    swap = f'cd "{crew.paths.runs}/coder-1/$LIZA_RUN"\nmv output.log aside\nmkfifo output.log\n'
    program = crew.script("agent", f'({swap})\ncat "$NOTES/on"\nliza block "no way" --ask "what then?" > /dev/null\n')
    crew.gate("on")
    crew.agent("coder-1", program)
    crew.wait(lambda _: (crew.paths.run("coder-1.1") / "aside").exists())
    told = crew.liza("logs", "coder-1", code=5)
    assert "output.log is not a regular file\n  next: mv " in told
    crew.open_gate("on")
    crew.wait_status("t1", "BLOCKED")
    crew.wait(lambda state: state.agents["coder-1"].status == "IDLE", "the supervisor at rest")


@pytest.mark.campaign
def test_logs_without_a_name_show_each_agents_lines_and_continue(crew: Crew) -> None:
    crew.gate("on")
    crew.add("t1", "t2")
    told = 'echo "$LIZA_AGENT_ID works on $LIZA_TASK"\ncat "$NOTES/on" > /dev/null\necho "$LIZA_AGENT_ID goes on"\n'
    program = crew.script("agent", f'{told}liza block "no way" --ask "what then?" > /dev/null\n')
    for agent in ("coder-1", "coder-2"):
        crew.agent(agent, program)
    both = ["coder-1 | coder-1 works on t1", "coder-2 | coder-2 works on t2"]
    crew.wait(lambda _: len([one for one in crew.liza("logs").splitlines() if "works on" in one]) == 2)
    assert sorted(one.replace("on t2", "on t1") for one in crew.liza("logs").splitlines()) == sorted(
        one.replace("on t2", "on t1") for one in both
    )
    notes = [crew.paths.run(f"{agent}.1") / "output.times" for agent in ("coder-1", "coder-2")]
    crew.wait(lambda _: all(note.exists() for note in notes), "the notes of the times")
    clock = r"\d\d:\d\d:\d\d  coder-[12] \| coder-[12] works on t[12]"
    for shown in crew.liza("logs", "-t", "--since", "1h").splitlines():
        assert re.fullmatch(clock, shown), shown
    for note in notes:
        (note.parent / "output.log").touch()
        note.write_text(f"1 {(note.parent / 'output.log').stat().st_size}\n")
    assert crew.liza("logs", "--since", "1h") == ""
    sessions = crew.json("logs")["trajectories"]
    assert {(one["trajectory_id"], one["steps"][0]["timestamp"]) for one in sessions} == {
        ("coder-1.1", "1970-01-01T00:00:01Z"),
        ("coder-2.1", "1970-01-01T00:00:01Z"),
    }
    words = [str(BIN / "liza"), "logs", "-f", "-n", "1"]
    with subprocess.Popen(words, cwd=crew.root, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert {line(child), line(child)} == {f"{one}\n" for one in crew.liza("logs").splitlines()}
            crew.open_gate("on")
            assert re.fullmatch(r"coder-[12] \| coder-[12] goes on\n", line(child))
        finally:
            child.send_signal(signal.SIGINT)


def test_following_all_agents_before_any_exist_shows_the_first_one(crew: Crew) -> None:
    crew.add("t1")
    with subprocess.Popen(
        [str(BIN / "liza"), "logs", "-f"], cwd=crew.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            crew.agent("coder-1", crew.script("agent", 'echo "first"\nliza block "no way" --ask "what then?"\n'))
            assert line(child) == "coder-1 | first\n"
        finally:
            child.send_signal(signal.SIGINT)
