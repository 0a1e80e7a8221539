"""Kill -9 of the commands that end a run: what is said again is heard once, and nothing that was said is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.model.value_classes import replace
from liza.programs.session.run_directory import RunRecord
from liza.recovery.recover import recover_crew
from liza.tasks.claim import claim
from liza.tasks.evidence import gather_evidence
from liza.tasks.handoff import HandoffRequest, handoff
from liza.tasks.questions import BlockRequest, block
from liza.tasks.rules.planning import claim_planning
from liza.tasks.submit import submit
from liza.tasks.verdict import verdict
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.campaign.worlds import World
from tests.conftest import commit_all
from tests.journeys.crews import BIN, Crew


@dataclass(frozen=True)
class Word:
    """A verb that ends a run: who says it, which event it leaves, which closing word, and how it is typed."""

    run: str
    say: Callable[[Path], object]
    event: str
    word: str
    typed: tuple[str, ...]


NOTE = HandoffRequest(summary="the half of it", next_action="the other half")
HANDOFF = ("handoff", "the half of it", "--next", "the other half")
KILLED_CODES = (-signal.SIGKILL, 137)
"""Exit codes of a client whose command was killed."""
WORDS = {
    "submit": Word("coder-1.1", lambda root: submit(find_crew(root)), "submit", "0", ("submit",)),
    "block": Word(
        "coder-1.1",
        lambda root: block(find_crew(root), BlockRequest(reason="no way", questions=("Which?",))),
        "block",
        "0",
        ("block", "no way", "--ask", "Which?"),
    ),
    "handoff": Word("coder-1.1", lambda root: handoff(find_crew(root), NOTE), "handoff", "42", HANDOFF),
    "approve": Word(
        "code-reviewer-1.1",
        lambda root: verdict(find_crew(root), "approve", "fine"),
        "approve",
        "0",
        ("verdict", "approve", "fine"),
    ),
    "reject": Word(
        "code-reviewer-1.1",
        lambda root: verdict(find_crew(root), "reject", "1. no"),
        "reject",
        "0",
        ("verdict", "reject", "1. no"),
    ),
    "review handoff": Word(
        "code-reviewer-1.1", lambda root: handoff(find_crew(root), NOTE), "release review", "42", HANDOFF
    ),
    "planner handoff": Word("planner-1.1", lambda root: handoff(find_crew(root), NOTE), "", "42", HANDOFF),
    "planner done": Word(
        "planner-1.1", lambda root: handoff(find_crew(root), replace(NOTE, done=True)), "", "0", (*HANDOFF, "--done")
    ),
}


def _hold(world: World, word: Word) -> None:
    """Let the run of ``word`` hold what its verb is about, as a session would, with a directory of its own."""
    crew = find_crew(world.root)
    agent = word.run.partition(".")[0]
    task: str | None = "task-1"
    kind, slot = "work", "s1"
    if agent == "planner-1":
        with crew.change(agent, "plan") as tx:
            tx.state, _ = claim_planning(tx.state, agent, crew.clock.now(), gather_evidence(crew, tx.state))
        task, kind, slot = None, "planning", agent
        crew.worktrees.detach(agent, "integration", word.run)
    else:
        claim(crew, "coder-1", task)
        there = crew.paths.slot("s1")
        commit_all(there, "work", {"task-1.txt": "x\n"})
    if agent == "code-reviewer-1":
        os.chdir(crew.paths.slot("s1"))
        submit(find_crew(world.root))
        claim(crew, agent, task)
        kind, slot = "review", agent
    place = crew.paths.slot(slot)
    record = RunRecord(
        agent=agent,
        run=word.run,
        kind=kind,
        started=crew.clock.now(),
        task=task,
        worktree=str(place),
        commit=crew.worktrees.head_commit(slot),
    )
    crew.run_dir(word.run).create(record)


def _speak(world: World, run: str, task: str | None, slot: str) -> None:
    """Be, for the rest of this fork, what a session of ``run`` says."""
    os.chdir(world.crew.paths.slot(slot))
    os.environ.update(LIZA_RUN=run, LIZA_AGENT_ID=run.partition(".")[0], LIZA_ROOT=str(world.root))
    if task:
        os.environ["LIZA_TASK"] = task


def _say(world: World, word: Word) -> Callable[[], None]:
    agent = word.run.partition(".")[0]

    def said() -> None:
        _speak(world, word.run, None if agent == "planner-1" else "task-1", "s1" if agent == "coder-1" else agent)
        word.say(world.root)

    return said


def _type(world: World, word: Word, fault: str = "", trace: Path | None = None) -> int:
    """Type the verb as a command of its session, and return its exit code. Fails if no command server ran it."""
    agent = word.run.partition(".")[0]
    slot = "s1" if agent == "coder-1" else agent
    variables = {"LIZA_RUN": word.run, "LIZA_AGENT_ID": agent, "LIZA_ROOT": str(world.root)}
    variables |= {} if agent == "planner-1" else {"LIZA_TASK": "task-1"}
    variables |= {name: str(value) for name, value in (("LIZA_FAULT", fault), ("LIZA_FAULT_TRACE", trace)) if value}
    with world.said.open("ab") as said:
        process = subprocess.Popen(
            [BIN / "liza", *word.typed], cwd=world.crew.paths.slot(slot), env={**os.environ, **variables},
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
        code = process.wait(timeout=90)
    if trace is not None:
        assert str(process.pid) not in {line.split()[0] for line in trace.read_text().splitlines()}, "it ran directly"
    return code


def _judge_word(world: World, word: Word) -> list[str]:
    crew = find_crew(world.root)
    assert forks.run(lambda: recover_crew(crew, "doctor"), quiet=world.said) == 0, world.told()
    found = [*problems(world.root)]
    directory = crew.run_dir(word.run)
    if directory.closing_code() != word.word or not directory.is_ready():
        found.append(f"the closing word is {directory.closing_code()}, ready is {directory.is_ready()}")
    state = crew.board.read()
    if word.event:
        events = [event.event for task in state.tasks for event in task.history if event.run == word.run]
        told = events.count(word.event)
    else:
        told = [line.event for line in state.goal.alignment_history].count(word.run)
    if told != 1:
        found.append(f"it was heard {told} times")
    journal = crew.paths.journal.read_text()
    return found + ([] if word.run in journal else ["the journal does not know it"])


def _world_of(tmp_path: Path, word: Word) -> World:
    """A world in which the run of ``word`` is about to say it."""

    def prepare(crew: Crew) -> None:
        if not word.run.startswith("planner"):
            crew.add("task-1")

    world = World(tmp_path, prepare)
    world.template.rename(world.root)
    assert forks.run(lambda: _hold(world, word), quiet=world.said) == 0, world.told()
    world.root.rename(world.template)
    world.renew()
    return world


@pytest.mark.parametrize(
    ("name", "all_points"),
    [
        *((name, False) for name in ("submit", "planner handoff")),
        *(pytest.param(name, True, marks=pytest.mark.campaign) for name in WORDS),
    ],
)
def test_a_killed_closing_verb_repeated_counts_exactly_once(tmp_path: Path, name: str, all_points: bool) -> None:
    word = WORDS[name]
    world = _world_of(tmp_path, word)
    trace = tmp_path / "trace"
    assert forks.run(_say(world, word), trace=trace, quiet=world.said) == 0, world.told()
    assert _judge_word(world, word) == []
    points = forks.passed(trace)
    chosen = points if all_points else ["renamed.state.yaml#1", "synced.word#1"]
    wrong, killed, began = [], 0, time.monotonic()
    for point in chosen:
        world.renew()
        killed += forks.run(_say(world, word), point, quiet=world.said) == -signal.SIGKILL
        assert forks.run(_say(world, word), quiet=world.said) == 0, f"{point}: {world.told()}"
        assert forks.run(_say(world, word), quiet=world.said) == 0, f"{point}: {world.told()}"
        wrong += [f"{point}: {one}" for one in _judge_word(world, word)]
    print(f"{name}: {killed} kills, {time.monotonic() - began:.0f} s, wrong {len(wrong)}")
    assert wrong == []
    assert killed == len(chosen)


@pytest.mark.campaign
@pytest.mark.parametrize("name", WORDS)
def test_a_closing_command_killed_and_repeated_is_applied_once(tmp_path: Path, name: str) -> None:
    word = WORDS[name]
    world = _world_of(tmp_path, word)
    trace = tmp_path / "trace"
    assert _type(world, word, trace=trace) == 0, world.told()
    assert _judge_word(world, word) == []
    points = forks.passed(trace)
    wrong, fired = [], 0
    for point in points:
        world.renew()
        fired += _type(world, word, point) in KILLED_CODES
        assert [_type(world, word), _type(world, word)] == [0, 0], f"{point}: {world.told()}"
        wrong += [f"{point}: {one}" for one in _judge_word(world, word)]
    print(f"{name}: {fired} of {len(points)} points fired, wrong {len(wrong)}")
    assert wrong == []
    assert fired == len(points) > 0
