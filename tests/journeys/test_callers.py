"""Who says a verb: what comes out of a session, or out of a test, is never a person's word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from liza.board.file_store import revision_journal
from liza.cli import app
from tests.ablation import switches
from tests.conftest import commit_all, variant
from tests.journeys.crews import BIN, Crew

REFUSED, READS, OWN, APART = "refused", "reads", "as the session", "another crew's"
"""What a verb does that is said in a session with nothing of it in the environment: it is refused as a person's; it
changes nothing; it is written as the session's; it is about another crew, and is not carried out here."""

VERBS: dict[str, tuple[str, str]] = {
    "init": ("init anew --no-test", REFUSED),
    "demo": ("", APART),
    "doctor": ("doctor", READS),
    "bug-report": ("bug-report", REFUSED),
    "programs list": ("programs list", READS),
    "programs check": ("", APART),
    "programs show": ("programs show claude", READS),
    "programs trust": ("programs trust", REFUSED),
    "programs accounts": ("programs accounts --clear script/a", REFUSED),
    "up": ("up --program script:/bin/true --coders 1", REFUSED),
    "start": ("start more", REFUSED),
    "run": ("run script:/bin/true", REFUSED),
    "down": ("down", REFUSED),
    "serve": ("serve", REFUSED),
    "mcp install": ("mcp install claude", READS),
    "ui": ("ui --once", READS),
    "web": ("web --log-out", REFUSED),
    "status": ("status", READS),
    "task list": ("task list", READS),
    "task show": ("task show task-1", READS),
    "task add": ("task add --id task-9 --desc x", REFUSED),
    "task edit": ("task edit task-2 --desc other", REFUSED),
    "answer": ("answer task-2 yes", REFUSED),
    "task unblock": ("task unblock task-2 --answer yes", REFUSED),
    "task supersede": ("task supersede task-2 --because x --file tasks.yaml", REFUSED),
    "task drop": ("task drop task-2", REFUSED),
    "task permit": (f"task permit task-1 {'0' * 40}", REFUSED),
    "task release": ("task release task-1", REFUSED),
    "diff": ("diff task-1", READS),
    "path": ("path task-1", READS),
    "history": ("history", READS),
    "logs": ("logs coder-1", READS),
    "attach": ("attach coder-1", REFUSED),
    "confine": ("confine task-1 -- true", REFUSED),
    "agents": ("agents", READS),
    "watch": ("watch --help", READS),
    "metrics": ("metrics", READS),
    "validate": ("validate", READS),
    "guard test": ("guard test ls", READS),
    "explain": ("explain", READS),
    "help": ("help --all", READS),
    "claim": ("claim task-2 --agent coder-8", REFUSED),
    "note": ("note --to coder-1 hello", REFUSED),
    "pause": ("pause", REFUSED),
    "resume": ("resume", REFUSED),
    "sync": ("sync main", REFUSED),
    "merge": ("merge task-1", REFUSED),
    "land": ("land --merge", REFUSED),
    "undo": ("undo task-1", REFUSED),
    "push": ("push", REFUSED),
    "queue move": ("queue move task-1 1", REFUSED),
    "queue hold": ("queue hold task-1 later", REFUSED),
    "queue release": ("queue release task-1", REFUSED),
    "queue retry": ("queue retry task-1", REFUSED),
    "epics restore": ("epics restore shop", REFUSED),
    "epics accept": ("epics accept shop", REFUSED),
    "breaker resolve": ("breaker resolve cause", REFUSED),
    "slots prune": ("slots prune", REFUSED),
    "slots repair": ("slots repair", REFUSED),
    "slots nuke": ("slots nuke s1", REFUSED),
    "host list": ("host list --help", READS),
    "host run": ("host run", REFUSED),
    "host forget": ("host forget h2", REFUSED),
    "ready": ("ready", REFUSED),
    "submit": ("submit", REFUSED),
    "verdict": ("verdict approve mine --task task-1", REFUSED),
    "block": ("block why --ask what", REFUSED),
    "handoff": ("handoff done --next more", REFUSED),
    "report": ("report workaround password=hunter2secret", OWN),
    "heartbeat": ("heartbeat", REFUSED),
    "exit": ("exit 0", REFUSED),
    "hook": ("hook claude SessionStart", READS),
    "archive": ("archive", REFUSED),
    "gc": ("gc", REFUSED),
    "edit": ("edit", REFUSED),
    "board migrate": ("board migrate postgresql://liza@/liza?host=/nowhere&crew=shop", REFUSED),
    "board import": ("board import --url postgresql://liza@/liza?host=/nowhere&crew=shop", REFUSED),
    "board export": ("board export", REFUSED),
    "join": ("join postgresql://liza@/liza?host=/nowhere&crew=shop", REFUSED),
    "config get": ("config get queue.batch", READS),
    "config set": ("config set queue.batch 3", REFUSED),
    "lock": ("lock -- true", REFUSED),
    "restore": ("restore --last-good", REFUSED),
    "command-server status": ("command-server status", READS),
    "command-server start": ("command-server start --help", READS),
    "command-server stop": ("command-server stop --help", READS),
    "liza-agent": ("coder-8 --program script:/bin/true", REFUSED),
}

WORDS_OF_REFUSAL = (
    "from inside the session coder-1.1",
    "neither a session nor a claimed worktree",
    "has a crew already",
)

THROUGH_THE_SERVER = """
import sys
sys.modules["liza.cli"] = None  # it fails if it runs the command itself
from liza.client import command_socket, main
command_socket.ANSWER_LIMIT = 300.0  # a busy server is waited for
sys.argv[0] = "liza"
sys.exit(main())
"""

ASK = (
    f"client = {THROUGH_THE_SERVER!r}"
    + """
import json, os, sys
from liza.cli import app, entry_points
from liza.commands._declare import Process
app.load_all_commands()
for name, words, place in json.load(sys.stdin):
    out, back = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(back, 1)
        os.dup2(back, 2)
        os.chdir(place)
        sys.argv = [name, *words]
        if os.environ.get("LIZA_COMMAND_SERVER") and name == "liza" and app.find_process(words) is not Process.DIRECT:
            os.execv(sys.executable, [sys.executable, "-c", client, *words])
        sys.exit((entry_points.liza_agent if name == "liza-agent" else entry_points.liza)())
    os.close(back)
    with os.fdopen(out) as heard:
        said = heard.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, said]), flush=True)
"""
)


def typed() -> set[str]:
    """Every verb of the command line, from the parser itself."""
    found = {"liza-agent"}
    whole = app.build_app()
    for word in whole.list_commands(None):
        command = whole.get_command(None, word)
        inside = getattr(command, "commands", None)
        found |= {f"{word} {one}" for one in inside} if inside else {word}
    return found


def session_of(crew: Crew, program: list[str], run: str = "coder-1.1", **more: Any) -> subprocess.CompletedProcess[str]:
    """What ``program`` said, as a child of a process that bears the run of a session."""
    words = [
        sys.executable,
        "-c",
        "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)",
        *program,
    ]
    environ = {**os.environ, "LIZA_RUN": run, "LIZA_ROOT": str(crew.root), "LIZA_TASK": "task-1"}
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, cwd=crew.root, **more)


def bare() -> list[str]:
    """env(1) that leaves a program nothing of a session."""
    keep = ("HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "LIZA_COMMAND_SERVER", *switches.VARIABLES)
    kept = [f"{name}={os.environ[name]}" for name in keep if name in os.environ]
    return ["env", "-i", f"PATH={BIN}:{os.environ['PATH']}", *kept]


@pytest.fixture(params=[variant(False, name="directly"), pytest.param(True, id="served")])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run in the processes that are typed, or in those of a command server."""
    if not request.param:
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("LIZA_COMMAND_SERVER", f"{directory}/socket")
        subprocess.run([BIN / "liza", "command-server", "start"], check=True, capture_output=True, timeout=90)
        try:
            yield
        finally:
            subprocess.run([BIN / "liza", "command-server", "stop"], check=True, capture_output=True, timeout=90)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kinds", [(REFUSED, OWN), variant((REFUSED, OWN, READS))])
def test_every_verb_without_sessions_environment_is_refused_or_the_sessions(crew: Crew, kinds: tuple[str, ...]) -> None:
    assert set(VERBS) == typed(), "each verb of the command line has a row in VERBS"
    there = crew.work_by_hand("task-1")
    crew.add("task-2")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "good", "--task", "task-1")
    below = crew.root / "below"
    below.mkdir()
    for place in (crew.root, below):
        (place / "tasks.yaml").write_text("id: task-8\ndescription: x\ndone_when: y\nscope: z\nspec_ref: README.md\n")
    asked = [(verb, line.split(), kind) for verb, (line, kind) in VERBS.items() if kind in kinds]
    before = crew.state()
    rows = [
        ("liza-agent" if verb == "liza-agent" else "liza", words, str(place))
        for (verb, words, _), place in zip(asked, cycle((crew.root, below)), strict=False)
    ]
    done = session_of(crew, [*bare(), sys.executable, "-c", ASK], input=json.dumps(rows))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(rows), done.stderr
    wrong = []
    for (verb, _, kind), (code, said) in zip(asked, answers, strict=True):
        right = code == 1 and any(word in said for word in WORDS_OF_REFUSAL) if kind == REFUSED else code in (0, 1, 5)
        if not right:
            wrong.append((verb, kind, code, said))
    assert not wrong
    since = [one for one in revision_journal.iter_newest_first(crew.paths.journal) if one.revision > before.revision]
    assert {one.actor for one in since} == {"coder-1.1"}, [(one.actor, one.event) for one in since]
    reports = crew.state().anomalies
    assert {one.reporter for one in reports} == {"coder-1.1"}
    assert "hunter2secret" not in str(reports)
    assert crew.state().tasks == before.tasks


@pytest.mark.usefixtures("way")
def test_reports_of_a_session_are_its_own_and_without_secrets(crew: Crew) -> None:
    crew.add("task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    for verb in ("report workaround", "note"):
        said = f"cd {crew.root} && liza {verb} 'token ghp_abcdefghijklmnopqrstuvwxyz0123456789 password=hunter2secret'"
        session_of(crew, [*bare(), "sh", "-c", said])
    state = crew.state()
    assert [(one.reporter, one.task) for one in state.anomalies] == [("coder-1.1", "task-1")]
    assert state.human_notes == ()
    assert "hunter2secret" not in crew.paths.state.read_text()


@pytest.mark.usefixtures("way")
def test_processes_of_a_test_are_no_person_and_are_ended(crew: Crew) -> None:
    said = crew.notes / "said"
    judge = f"cd {crew.root}; liza verdict approve mine --task task-2 > {said}.tmp 2>&1; mv {said}.tmp {said}"
    test = crew.root / "run-tests"
    bare_sh = " ".join(f"'{word}'" for word in [*bare(), "sh", "-c"])
    test.write_text(
        f"#!/bin/sh\n[ -f task-1.txt ] || exit 0\n(setsid {bare_sh} '{judge}; exec sleep 60' &)\n"
        f"until [ -f {said} ]; do sleep 0.1; done\n"
    )
    test.chmod(0o755)
    commit_all(crew.root, "a test that judges")
    crew.prepare("sync", "main")
    crew.configure(integration_command="./run-tests")
    for task in ("task-1", "task-2"):
        there = crew.work_by_hand(task)
        crew.liza("submit", cwd=there)
        crew.liza("claim", "--agent", "coder-1", code=1)
    crew.liza("verdict", "approve", "good", "--task", "task-1")
    crew.liza("merge", "task-1")
    assert "from inside a test or a set-up command" in said.read_text()
    assert crew.status("task-1") == "MERGED"
    assert crew.status("task-2") == "READY_FOR_REVIEW"
    assert crew.living() == []
