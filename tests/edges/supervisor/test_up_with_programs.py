"""What `up` says while agents with one program leave and those with another stay."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.model.configuration import Config, Confinement
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Status
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.programs.presets.preset import Permissions, Preset
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.feed import Feed, MergeLines, describe_stop
from liza.supervisor.foreground import (
    SupervisorWait,
    UpCallbacks,
    UpEvent,
    UpEventKind,
    _watch_goal,
    run_foreground,
)
from liza.supervisor.start import _warn_unconfined
from liza.system.locks import Lock
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from tests.conftest import FakeClock
from tests.edges.git.test_slots_place import begun

FREE = Preset(name="free", command="/bin/free")
TIED = Preset(name="tied", command="/bin/tied", permissions=Permissions(prompts=("--confined",)))


def exited(agent: str) -> UpEvent:
    return UpEvent(UpEventKind.SUPERVISOR_EXITED, agent)


def unusable(agent: str) -> UpEvent:
    return UpEvent(UpEventKind.PROGRAM_UNUSABLE, agent)


@contextmanager
def sleepers(*agents: str) -> Iterator[dict[str, subprocess.Popen[str]]]:
    with ExitStack() as stack:
        children = {}
        for agent in agents:
            child = stack.enter_context(subprocess.Popen(["sleep", "60"], text=True))
            stack.callback(child.kill)
            children[agent] = child
        yield children


def said_of(
    programs: dict[str, Preset], *heard: UpEvent, others: tuple[str, ...] = (), asked: tuple[str, ...] = ()
) -> list[str]:
    """What is said for what is heard, where those in ``asked`` are asked to leave, and nobody else."""
    events: queue.SimpleQueue[UpEvent] = queue.SimpleQueue()
    told: list[str] = []
    with sleepers(*programs) as children:
        for event in heard:
            events.put(event)
        calls = UpCallbacks(lambda agent, text: told.append(text), lambda role: role in others)
        SupervisorWait(children, programs, calls).wait(events)
        assert [children[agent].wait(timeout=60) for agent in asked] == [-signal.SIGTERM] * len(asked)
        assert all(child.poll() is None for agent, child in children.items() if agent not in asked)
        return told


def test_an_unusable_program_names_the_role_without_agents() -> None:
    crew = {"planner-1": TIED, "coder-1": FREE, "coder-2": FREE, "code-reviewer-1": TIED}
    told = said_of(
        crew,
        unusable("coder-1"),
        exited("coder-1"),
        exited("coder-2"),
        UpEvent(UpEventKind.STOP_REQUESTED),
        exited("planner-1"),
        exited("code-reviewer-1"),
        others=("planner",),
        asked=("coder-2", "planner-1", "code-reviewer-1"),
    )
    assert "no agent codes now: liza status says why; the others continue" in told
    assert told[-1] == "stopping 2 agents… (again: at once)"


def test_role_is_not_named_empty_while_agents_leave_or_return() -> None:
    alike = {"planner-1": FREE, "coder-1": FREE}
    assert (
        said_of(
            alike,
            unusable("coder-1"),
            exited("coder-1"),
            exited("planner-1"),
            asked=("planner-1",),
        )
        == []
    )
    mixed = {"planner-1": TIED, "coder-1": FREE}
    assert said_of(mixed, exited("coder-1"), exited("planner-1"), others=("coder", "planner")) == []


def test_the_last_one_that_is_stopped_is_counted_alone() -> None:
    crew = {"planner-1": TIED, "coder-1": FREE}
    told = said_of(
        crew, exited("coder-1"), UpEvent(UpEventKind.STOP_REQUESTED), exited("planner-1"), asked=("planner-1",)
    )
    assert told[-1] == "stopping 1 agent… (again: at once)"


def test_an_unconfined_program_is_a_single_warning() -> None:
    told: list[str] = []
    for permissions in ("prompts", "bypass"):
        config = Config(permissions=permissions, confinement=Confinement.OFF)
        _warn_unconfined(config, (FREE, TIED, FREE), lambda agent, text: told.append(text))
    assert told == ["free: nothing confines it: it can do what you can"]


def test_signals_end_the_command_again_once_all_supervisors_have_left(repo: Path) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    crew = begun(repo)
    feed = Feed(lambda agent, text, when: None, crew.clock.now)
    assert run_foreground(crew, [], UpOptions(), {}, feed) == 0
    feed.close(60)
    assert [signal.getsignal(number) for number in numbers] == before


def test_up_in_a_moved_repository_ends_with_its_new_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "old"
    root.mkdir()
    monkeypatch.chdir(root)
    root.rename(tmp_path / "new place")
    line = describe_stop(Crew(Paths(root), FakeClock()), UpOptions(), [5])
    now = tmp_path / "new place"
    assert line == f"all stopped; the repository is no longer at {root}. Go on: cd '{now}' && liza up"


def test_up_names_at_its_end_an_agent_another_command_started(tmp_path: Path) -> None:
    crew = Crew(Paths(tmp_path), FakeClock())
    crew.paths.locks.mkdir(parents=True)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        line = describe_stop(crew, UpOptions(), [0, 0])
    assert line.startswith("stopped, but coder-1 goes on: ")
    assert line.endswith(": liza down")
    assert describe_stop(crew, UpOptions(), [0, 0]).startswith("all stopped; ")


def test_the_end_is_printed_after_the_lines_about_merges(repo: Path) -> None:
    crew = begun(repo)
    add(crew, (TaskFields("t1", "Write", "it is there", "t1.txt", "README.md"),))
    events: queue.SimpleQueue[UpEvent] = queue.SimpleQueue()
    lines: list[str] = []
    merge_lines = MergeLines(lambda agent, text: lines.append(text))
    options = UpOptions(planners=0)
    threading.Thread(target=_watch_goal, args=(crew, options, events, merge_lines), daemon=True).start()
    assert events.get(timeout=60).kind is UpEventKind.BOARD_CHANGED
    with crew.change("human:ann", "merge", "t1") as tx:
        task = tx.state.task("t1")
        assert task is not None
        merged = Event(time=crew.clock.now(), event=HistoryEvent.MERGE, agent="coder-1", commit="d" * 40)
        commits = {"review_commit": "d" * 40, "merge_commit": "d" * 40, "approved_by": "code-reviewer-1"}
        task = replace(task, status=Status.MERGED, history=(*task.history, merged), **commits)
        tx.state = tx.state.with_task(task)
    with pytest.raises(queue.Empty):
        events.get(timeout=0.3)
    merge_lines("liza", "t1 merged as dddddddddd, untested")
    assert events.get(timeout=60).kind is UpEventKind.GOAL_DONE
    assert lines == ["t1 merged as dddddddddd, untested"]
