"""Command lines typed directly and through a command server, on two crews that are alike: nothing differs."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from liza.board.file_store.file_board import FileBoard
from liza.model.model import State, Status, Task
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.conftest import GIT_CONFIG, git
from tests.journeys.crews import BIN, project
from tests.journeys.test_callers import typed

SEED = int(os.environ.get("LIZA_SEED", "20260101"))
LINES = int(os.environ.get("LIZA_LINES", "2400"))
LEAST_OF_A_VERB = 20
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?|\b\d\d:\d\d(:\d\d)?Z?\b"), "CLOCK"),
    (re.compile(r'\b\d+(\.\d+)? ?(ms|s|min|h|MB|KB|kB)\b *|(?<=seconds": )\d+(\.\d+)?|(?<=  )-(?=\s)'), "AMOUNT"),
    (re.compile(r'(?<=process )\d+|(?<=pid )\d+|pid"?: \d+(, start: "\d+")?'), "PID"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), "HASH"),
    (re.compile(r"\b\d{8}-\d{6}(-\w+)*"), "MESSAGE"),
)
"""What differs between two runs of a command: the clock, amounts of time and memory, pids, hashes, ids of messages."""


@dataclass
class Side:
    """One of the two crews: ``command`` runs `liza`, everything of it is below ``home``."""

    home: Path
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.home / "project"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text(GIT_CONFIG)
        project(self.root)
        places = {"HOME": str(self.home), "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"), "EDITOR": "true"}
        self.env = {**os.environ, **places}

    def start(self, line: Line) -> subprocess.Popen[str]:
        place = self.root / line.place
        if line.commit:
            (place / line.commit).write_text(f"{line.commit}\n")
            git(place, "add", line.commit)
            git(place, "commit", "-q", "-m", line.commit)
        env = {**self.env, **line.env, **({"LIZA_ROOT": str(self.root)} if line.env else {})}
        words = [*self.command, *line.words] if line.program == "liza" else [str(BIN / line.program), *line.words]
        return subprocess.Popen(
            words, cwd=place, env=env, text=True, errors="surrogateescape",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def board(self) -> str:
        state = self.root / ".liza" / "state.yaml"
        return self.mask(state.read_text()) if state.exists() else ""

    def mask(self, text: str) -> str:
        text = text.replace(str(self.home), "HOME")
        for pattern, word in MASKS:
            text = pattern.sub(word, text)
        # The widest amount makes the columns. Events of one second on this side may be of two seconds on the other.
        lines = [re.sub(" {2,}", "  ", line) for line in text.splitlines()]
        groups = itertools.groupby(lines, lambda line: line.startswith("CLOCK "))
        return "\n".join(line for are_events, group in groups for line in (sorted(group) if are_events else group))


@dataclass(frozen=True)
class Line:
    """A command line: its words, the directory below the crew, and what a session has in its environment."""

    verb: str
    words: tuple[str, ...]
    place: str = "."
    env: dict[str, str] = field(default_factory=dict)
    stdin: str = ""
    commit: str = ""
    program: str = "liza"


class Typist:
    """Chooses command lines for the board as it is, so that most of them succeed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.number = chance, 0

    def type(self, verb: str, state: State) -> Line:
        maker: Callable[[State], Line] | None = getattr(self, "_" + verb.replace(" ", "_").replace("-", "_"), None)
        if maker is not None:
            return maker(state)
        words = self.chance.choice(PLAIN.get(verb, (f"{verb} --help",)))
        if verb == "liza-agent":
            return Line(verb, ("--help",), program="liza-agent")
        return Line(verb, tuple(words.split()))

    def _next(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def _task(self, state: State, *statuses: Status) -> Task | None:
        found = [task for task in state.tasks if not statuses or task.status in statuses]
        return self.chance.choice(found) if found else None

    def _id(self, state: State, *statuses: Status) -> str:
        task = self._task(state, *statuses) or self._task(state)
        return task.id if task else "none"

    def _in_session(self, verb: str, state: State, *words: str, review: bool = False, commit: bool = False) -> Line:
        """A line of the session that holds a task; of a person, where no session holds one."""
        tasks = [
            task
            for task in state.tasks
            if (task.reviewing_by if review else task.status == Status.CLAIMED and task.run and task.worktree)
        ]
        if not tasks:
            return Line(verb, (verb, *words))
        task = self.chance.choice(tasks)
        run = (task.review_run if review else task.run) or ""
        slot = task.reviewing_by if review else task.worktree
        env = {"LIZA_RUN": run, "LIZA_TASK": task.id}
        name = self._next("file") if commit else ""
        return Line(verb, (verb, *words), place=f".worktrees/.slots/{slot}", env=env, commit=name)

    def _task_add(self, state: State) -> Line:
        name = self._next("t")
        words = ("task", "add", "--id", name, "--desc", "Write", "--done", "it is there", "--scope", "all")
        return Line("task add", (*words, "--spec", "README.md", "--priority", str(self.chance.randint(1, 9))))

    def _task_edit(self, state: State) -> Line:
        words = ("task", "edit", self._id(state, Status.UNCLAIMED, Status.DRAFT), "--desc", self._next("Write "))
        return Line("task edit", words)

    def _claim(self, state: State) -> Line:
        busy = {task.assigned_to for task in state.tasks if task.status == Status.CLAIMED}
        free = [f"coder-{number}" for number in range(1, 9) if f"coder-{number}" not in busy] or ["coder-1"]
        waiting = self._task(state, Status.READY_FOR_REVIEW)
        if waiting is not None and self.chance.random() < 0.5:
            return Line("claim", ("claim", waiting.id, "--agent", f"code-reviewer-{self.chance.randint(1, 3)}"))
        return Line("claim", ("claim", self._id(state, Status.UNCLAIMED), "--agent", self.chance.choice(free)))

    def _submit(self, state: State) -> Line:
        return self._in_session("submit", state, commit=True)

    def _verdict(self, state: State) -> Line:
        verdict = self.chance.choice(("approve", "approve", "reject"))
        line = self._in_session("verdict", state, verdict, "read it", review=True)
        return line if line.env else Line("verdict", (*line.words, "--task", self._id(state, Status.READY_FOR_REVIEW)))

    def _merge(self, state: State) -> Line:
        return Line("merge", ("merge", self._id(state, Status.APPROVED)))

    def _block(self, state: State) -> Line:
        return self._in_session("block", state, "no way", "--ask", "Which?")

    def _handoff(self, state: State) -> Line:
        return self._in_session("handoff", state, "half", "--next", "the rest")

    def _heartbeat(self, state: State) -> Line:
        return self._in_session("heartbeat", state)

    def _ready(self, state: State) -> Line:
        return self._in_session("ready", state)

    def _exit(self, state: State) -> Line:
        return self._in_session("exit", state, "7")

    def _hook(self, state: State) -> Line:
        payload = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}}
        line = self._in_session("hook", state, "claude", "PreToolUse")
        return Line("hook", line.words, line.place, line.env, json.dumps(payload))

    def _answer(self, state: State) -> Line:
        return Line("answer", ("answer", self._id(state, Status.BLOCKED), "yes"))

    def _task_unblock(self, state: State) -> Line:
        return Line("task unblock", ("task", "unblock", self._id(state, Status.BLOCKED), "--answer", "yes"))

    def _task_drop(self, state: State) -> Line:
        return Line("task drop", ("task", "drop", self._id(state, Status.DRAFT, Status.UNCLAIMED), "--because", "no"))

    def _task_release(self, state: State) -> Line:
        return Line("task release", ("task", "release", self._id(state, Status.CLAIMED)))

    def _note(self, state: State) -> Line:
        return Line("note", ("note", self._next("Mind the step ")))

    def _report(self, state: State) -> Line:
        return Line("report", ("report", "discovery", self._next("It is slow "), "--urgency", "deferred"))

    def _config_set(self, state: State) -> Line:
        name = self.chance.choice(("queue.batch", "max_iterations", "heartbeat_interval"))
        return Line("config set", ("config", "set", name, str(self.chance.randint(2, 90))))

    def _queue_hold(self, state: State) -> Line:
        return Line("queue hold", ("queue", "hold", self._id(state, Status.APPROVED), "later"))

    def _queue_release(self, state: State) -> Line:
        return Line("queue release", ("queue", "release", self._id(state, Status.APPROVED)))

    def _of_a_task(self, *words: str) -> Callable[[State], Line]:
        return lambda state: Line(" ".join(words), (*words, self._id(state)))

    def __getattr__(self, name: str) -> Callable[[State], Line]:
        verb = name.removeprefix("_").split("_")
        if verb in (["diff"], ["path"], ["task", "show"]):
            return self._of_a_task(*verb)
        raise AttributeError(name)


PLAIN = {
    "init": ("init anew --no-test",), "doctor": ("doctor", "doctor --json"), "down": ("down",),
    "programs list": ("programs list", "programs list --json"), "programs show": ("programs show claude",),
    "status": ("status", "status --json", "status --nonsense"), "task list": ("task list", "task list --json"),
    "history": ("history", "history -n 5", "history -p -n 1"), "logs": ("logs", "logs coder-1"),
    "agents": ("agents", "agents coder-1"), "metrics": ("metrics",), "validate": ("validate",),
    "guard test": ("guard test ls", "guard test git~push"), "explain": ("explain", "explain blocked"),
    "pause": ("pause",), "resume": ("resume",), "sync": ("sync main",), "push": ("push",), "gc": ("gc",),
    "queue move": ("queue move none 1",), "queue retry": ("queue retry none",), "slots prune": ("slots prune",),
    "slots repair": ("slots repair",), "slots nuke": ("slots nuke s99",), "archive": ("archive",),
    "config get": ("config get queue.batch", "config get nonsense"), "lock": ("lock -- true", "lock -- false"),
    "restore": ("restore --last-good",), "breaker resolve": ("breaker resolve cause",), "edit": ("edit",),
    "epics restore": ("epics restore shop",), "epics accept": ("epics accept shop",), "land": ("land",),
    "programs trust": ("programs trust",), "programs accounts": ("programs accounts",),
    "task supersede": ("task supersede none --because x --file none.yaml",),
}  # fmt: skip
"""Lines of verbs that need no task; "~" is a space inside a word. Verbs that supervise or own a terminal print help."""
OFTEN = {
    "task add": 5, "task edit": 5, "claim": 7, "submit": 5, "verdict": 4, "merge": 3, "heartbeat": 7, "note": 7,
    "report": 4, "config set": 6, "block": 2, "answer": 2, "handoff": 2,
}  # fmt: skip
"""Verbs that are typed more often than the others: the shares of the lines that are left."""


def choose_verbs(chance: random.Random, lines: int) -> list[str]:
    """Return the verbs of the lines: each so often that it is tested, and those that change the board more often."""
    verbs = sorted(typed())
    chosen = [verb for verb in verbs for _ in range(max(1, LEAST_OF_A_VERB * lines // 2400))]
    chosen += chance.choices(list(OFTEN), list(OFTEN.values()), k=max(0, lines - len(chosen)))
    chance.shuffle(chosen)
    return ["task add"] * 4 + chosen


def compare(sides: tuple[Side, Side], line: Line) -> tuple[int, list[str]]:
    """Run a line on both sides; return its exit code, and what differs."""
    processes = [side.start(line) for side in sides]
    outputs = [process.communicate(line.stdin, timeout=120) for process in processes]
    answers = [
        (process.returncode, *(side.mask(text) for text in output), side.board())
        for side, process, output in zip(sides, processes, outputs, strict=True)
    ]
    names = ("exit code", "stdout", "stderr", "board")
    return processes[0].returncode, [
        f"{line.words}: {name}: directly {one!r}, served {other!r}"
        for name, one, other in zip(names, *answers, strict=True)
        if one != other
    ]


@pytest.mark.campaign
def test_a_command_does_the_same_directly_and_through_the_server(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    directly = Side(tmp_path / "a", [sys.executable, "-P", "-m", "liza"])
    served = Side(tmp_path / "b", [str(BIN / "liza")])
    begin = Line("init", ("init", "Every file is there", "--no-test", "--worktrees", ".worktrees"))
    assert compare((directly, served), begin) == (0, [])
    board = FileBoard(Paths(directly.root), SystemClock())
    typist, counts, wrong = Typist(chance), Counter[str](), list[str]()
    for verb in choose_verbs(chance, LINES):
        before = directly.root.joinpath(".liza/state.yaml").read_bytes()
        line = typist.type(verb, board.read())
        code, differences = compare((directly, served), line)
        counts[verb] += 1
        counts["succeeded"] += code == 0
        counts["changed"] += code == 0 and directly.root.joinpath(".liza/state.yaml").read_bytes() != before
        wrong += differences
    lines, succeeded, changed = sum(counts[verb] for verb in typed()), counts["succeeded"], counts["changed"]
    print(f"seed {SEED}: {lines} lines, each verb at least {min(counts[verb] for verb in typed())} times,")
    print(f"{succeeded} succeeded, {changed} of them changed the board, {len(wrong)} differences")
    assert not wrong, "\n".join(wrong)
    assert succeeded >= lines / 2
    assert changed >= succeeded / 2
