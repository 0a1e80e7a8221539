"""Whatever can take one branch does so at once, some of it killed: one owner, one task, one merge, nothing lost."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from liza.board.text.document import load_state
from liza.model import invariants
from liza.model.model import State
from tests.conftest import variant, worktree_of
from tests.journeys.crews import BIN, Crew
from tests.journeys.mcp_programs import Program, commit
from tests.journeys.test_submissions import POINTS, REVIEWER, branch

LIMIT = 120.0
MERGE_POINTS = ("launch.recorded", "merge.begun", "merge.passed", "merge.advanced", "merge.merged", "notes.written")
CLAIM = ("claim_task", {"task": "mail"})
SUBMIT: tuple[str, dict[str, str]] = ("submit_work", {})


class Answer(NamedTuple):
    """What a racer said: ``code`` is 0 for done. A tool of MCP has 0 or 1."""

    code: int
    text: str
    error: str = ""


class Racer(NamedTuple):
    """A command, where it is typed, and the point at which it is killed."""

    words: Sequence[str | Path]
    directory: Path
    point: str = ""


def race(
    chance: random.Random,
    racers: Mapping[str, Racer],
    programs: Mapping[str, tuple[Program, Sequence[tuple[str, Any]]]],
    programs_first: bool = False,
    kill: Callable[[], None] | None = None,
) -> dict[str, Answer]:
    """Let all of them begin at once, in an order by chance: each waits until all are there. Return their answers.

    ``programs_first``: the commands begin once the programs have their answers. ``kill`` ends the racer ``merge``; the
    racer ``merge too`` begins only then.
    """
    barriers, started = {}, {}
    for name, racer in racers.items():
        reader, barriers[name] = os.pipe()
        words = ["sh", "-c", 'read _; exec "$0" "$@" < /dev/null', str(BIN / "liza"), *map(str, racer.words)]
        env = {**os.environ, "LIZA_FAULT": racer.point} if racer.point else dict(os.environ)
        started[name] = subprocess.Popen(
            words,
            cwd=racer.directory,
            env=env,
            stdin=reader,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        os.close(reader)
    with ThreadPoolExecutor(max(1, len(programs))) as pool:
        calls: dict[str, Future[dict[str, Answer]]] = {}
        if programs_first:
            calls = {name: pool.submit(_call, *call) for name, call in _shuffled(chance, programs)}
            wait(calls.values())
        late = barriers.pop("merge too", None) if kill is not None else None
        for _, barrier in _shuffled(chance, barriers):
            os.close(barrier)
            if not calls:
                calls = {name: pool.submit(_call, *call) for name, call in programs.items()}
        if kill is not None and late is not None:
            kill()
            os.close(late)
        answers = {name: answer for done in calls.values() for name, answer in done.result().items()}
    for name, process in started.items():
        text, error = process.communicate(timeout=LIMIT)
        answers[name] = Answer(process.returncode, text, error)
    return answers


def _shuffled(chance: random.Random, names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows = list(names.items())
    chance.shuffle(rows)
    return rows


def _call(program: Program, calls: Sequence[tuple[str, Any]]) -> dict[str, Answer]:
    """Send the calls without waiting for one of them; return their answers."""
    numbers = [program.begin("tools/call", {"name": tool, "arguments": arguments}) for tool, arguments in calls]
    results = {answer["id"]: answer["result"] for answer in (program.receive() for _ in numbers)}
    return {
        f"{program.process.pid} {tool} {number}": Answer(
            int(results[number]["isError"]), results[number]["content"][0]["text"]
        )
        for number, (tool, _) in zip(numbers, calls, strict=True)
    }


def kill_at(crew: Crew, point: str) -> None:
    """Kill a command with all that it started, once one of them is at the point."""
    crew.wait(lambda _: any(map(_is_stopped, list_armed(point))), f"a stop at {point}")
    while armed := list_armed(point):  # one of them may have started another
        for pid in armed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def list_armed(point: str) -> list[int]:
    """Return the processes that stop at the point."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"LIZA_FAULT={point}:stop".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def require_reasons(answers: Iterable[Answer]) -> None:
    """Each loser gets one sentence and a next step."""
    for answer in answers:
        if answer.code in (0, -signal.SIGKILL):
            continue
        said = answer.error or answer.text
        assert re.fullmatch(r"(liza: )?[^\n]+(\n  n|\. N)ext: [^\n]+\n?", said), answer


def read_revisions(crew: Crew) -> list[State]:
    """Return every board that ever was, as git has it."""
    crew.run("history")
    commits = crew.git("rev-list", "--reverse", "refs/liza/blackboard").split()
    return [load_state(crew.git("show", f"{each}:state.yaml") + "\n", each) for each in commits]


def require_one_owner(crew: Crew) -> None:
    """No revision breaks a rule or has two tasks of one work, and no run replaces another that was not ended."""
    before: State | None = None
    for state in read_revisions(crew):
        assert not list(invariants.check_board(state))
        works = [task.review_commit for task in state.tasks if task.review_commit]
        assert len(works) == len(set(works))
        owners = [task.assigned_to for task in state.tasks if task.status == "CLAIMED"]
        assert len(owners) == len(set(owners))
        for task in state.tasks:
            earlier = before.task(task.id) if before is not None else None
            if earlier is not None and earlier.status == task.status == "CLAIMED":
                assert earlier.run == task.run
        before = state
    assert crew.json("validate")["violations"] == []


def require_one_merge(crew: Crew, *tasks: str) -> None:
    """Each task is merged by one commit, and that has one statement of each kind."""
    subjects = crew.git("log", "--first-parent", "--format=%s", "main..integration").splitlines()
    assert sorted(subject.split()[1] for subject in subjects) == sorted(f"{task}:" for task in tasks)
    for task in tasks:
        merge = crew.task(task).merge_commit
        assert merge is not None
        lines = crew.git("notes", "--ref", "liza", "show", merge).splitlines()
        assert len(lines) == len(set(lines)) > 0
        assert crew.heard(task).count("merge") == crew.heard(task).count("submit work") == 1
    assert crew.json("land", "--verify")["faults"] == []
    assert crew.living() == []


KILLS = [
    ("", ""),
    *(("submit", point) for point in POINTS),
    *(("merge", point) for point in MERGE_POINTS),
    ("other", "submission.recorded"),
    ("here", "submission.document"),
]


@pytest.mark.parametrize(("killed", "point"), KILLS, ids=["-".join(kill).strip("-") or "none" for kill in KILLS])
@pytest.mark.sample(2)
def test_one_branch_is_one_task_and_one_merge(crew: Crew, killed: str, point: str) -> None:
    made = branch(crew, "fix")
    fox, owl = crew.root.with_name("fox"), crew.root.with_name("owl")
    crew.git("worktree", "add", "-q", str(fox), "fix")
    crew.git("worktree", "add", "-q", "--detach", str(owl), "fix")
    above = commit(crew, owl, "owl.txt")
    merge = ("--merge", "--program", crew.script("reviewer", REVIEWER))
    racers = {
        "submit": Racer(("submit", "fix"), crew.root),
        "again": Racer(("submit", "fix"), owl),
        "here": Racer(("submit", "."), fox),
        "here too": Racer(("submit", "."), fox),
        "other": Racer(("submit", ".", "--id", "owl"), owl),
        "merge": Racer(("submit", ".", *merge), fox),
        "merge too": Racer(("submit", "fix", *merge), crew.root),
        "claim": Racer(("claim", "fix", "--agent", "coder-1"), crew.root),
    }
    at_stop = killed == "merge"
    if killed:
        racers[killed] = racers[killed]._replace(point=f"{point}:stop" if at_stop else point)
    programs = {name: (Program(where), (("claim_task", {"task": "fix"}),)) for name, where in (("a", fox), ("b", owl))}
    kill = partial(kill_at, crew, point) if at_stop else None
    answers = race(random.Random(f"{killed} {point}"), racers, programs, kill=kill)
    done = {name for name, answer in answers.items() if answer.code == 0}
    lost = set(racers) - {"claim", killed} - done
    assert not lost, {name: answers[name] for name in lost}
    assert "claim" not in done
    require_reasons(answer for name, answer in answers.items() if name != killed)
    for program, _ in programs.values():
        program.leave()
    if killed:
        crew.run("doctor", "--fix")
    for word, directory in (("fix", crew.root), (".", owl)):
        crew.liza("submit", word, *merge, cwd=directory)
    assert {task.id: task.review_commit for task in crew.state().tasks} == {"fix": made, "owl": above}
    require_one_owner(crew)
    require_one_merge(crew, "fix", "owl")


DEATHS = ("", "bound claim.recorded", "bound submit.recorded", "bound hand-off.saved")


@pytest.mark.parametrize(
    ("programs_first", "point"),
    [(False, ""), (True, DEATHS[1]), *(variant(True, point) for point in DEATHS if point != DEATHS[1])],
)
def test_one_claimer_has_the_task_of_a_worktree(crew: Crew, programs_first: bool, point: str) -> None:
    crew.add("mail")
    places = {name: crew.root.with_name(name) for name in ("fox", "owl")}
    for name, path in places.items():
        crew.git("worktree", "add", "-q", "-b", name, str(path), "integration")
    env = {"LIZA_FAULT": point} if point else {}
    programs = {"1": Program(places["fox"], **env), "2": Program(places["fox"]), "3": Program(places["owl"])}
    claims = {f"coder-{number}": Racer(("claim", "mail", "--agent", f"coder-{number}"), crew.root) for number in (1, 2)}
    chance = random.Random(point)
    answers = race(chance, claims, {name: (program, (CLAIM,)) for name, program in programs.items()}, programs_first)
    require_reasons(answer for answer in answers.values() if "could not be carried out" not in answer.text)
    winners = [name for name, answer in answers.items() if answer.code == 0]
    assert len(winners) + (point == DEATHS[1]) >= crew.heard("mail").count("claim") >= 1, answers
    assert len(winners) <= 1
    task = crew.task("mail")
    there = Path(task.submission.worktree) if task.submission is not None else worktree_of(crew.root, "mail")
    made = commit(crew, there, "mail.txt")
    others = {
        "here": Racer(("submit", "."), there),
        "branch": Racer(("submit", there.name), crew.root),
        "merge": Racer(("submit", ".", "--merge"), there),
        **claims,
    }
    calls = {name: (program, (SUBMIT, SUBMIT, CLAIM)) for name, program in programs.items()}
    race(chance, others, calls)
    for program in programs.values():
        program.leave()
    crew.run("doctor", "--fix")
    assert [task.id for task in crew.state().tasks] == ["mail"]
    assert crew.heard("mail").count("submit") <= 1
    assert crew.git("for-each-ref", "--contains", made)
    require_one_owner(crew)


@pytest.mark.parametrize("seed", [1, variant(2), variant(3), variant(4)])
def test_returned_work_has_one_mender(crew: Crew, seed: int) -> None:
    fox, owl = crew.root.with_name("fox"), crew.root.with_name("owl")
    crew.git("worktree", "add", "-q", "-b", "fix", str(fox))
    crew.git("worktree", "add", "-q", "--detach", str(owl))
    commit(crew, fox, "fix.txt", "wrong\n")
    crew.prepare("submit", "fix")
    crew.prepare("verdict", "reject", "wrong", "--task", "fix")
    later = commit(crew, fox, "fix.txt", "right\n")
    racers = {
        "author": Racer(("submit", "fix"), crew.root),
        "here": Racer(("submit", "."), fox),
        "crew": Racer(("submit", "fix", "--fix", "crew"), crew.root),
        "coder-1": Racer(("claim", "fix", "--agent", "coder-1"), crew.root),
        "coder-2": Racer(("claim", "fix", "--agent", "coder-2"), crew.root),
    }
    claim = ("claim_task", {"task": "fix"})
    programs = {name: (Program(where), (claim,)) for name, where in (("1", fox), ("2", fox), ("3", owl))}
    answers = race(random.Random(seed), racers, programs, programs_first=seed % 2 == 1)
    require_reasons(answers.values())
    task = crew.task("fix")
    assert [task.id for task in crew.state().tasks] == ["fix"]
    submitted = any(answers[name].code == 0 for name in ("author", "here", "crew"))
    assert submitted == (task.status != "CLAIMED"), answers
    assert [answer.code for answer in answers.values()].count(0) == (1 if task.status == "CLAIMED" else 3), answers
    require_one_owner(crew)
    for program, _ in programs.values():
        program.leave()
    assert crew.git("for-each-ref", "--contains", later)
