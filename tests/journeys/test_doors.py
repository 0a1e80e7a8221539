"""The installed commands as processes: every bad word gets a sentence, an exit code, and the board as it was."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liza.cli import app, entry_points
from liza.cli.reference import build_reference as reference
from liza.model.errors import BoardUnreadable, GitFailed, LockTimeout, Missing, Refused, WriteFailed
from liza.model.paths import Paths
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system.installation import liza_path, qualify_command
from tests.conftest import commit_all, git, worktree_of

HERE = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def say(words: list[str], cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """``liza`` as a person or an agent runs it."""
    return subprocess.run(
        [str(BIN / "liza"), *words],
        cwd=cwd,
        input=stdin,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def here(
    crew: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same door without a process of its own, for the long tables of bad words: a second for them all."""
    monkeypatch.chdir(crew)

    def said(words: list[str], stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            for name, value in env.items():
                patch.setenv(name, value)
            code = entry_points.run_reporting_errors(app.run_liza, words, "liza")
        told = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, told.out, told.err)

    return said


Here = Callable[..., subprocess.CompletedProcess[str]]


def ok(words: list[str], cwd: Path, **more: str) -> str:
    done = say(words, cwd, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crew with two tasks, made once and copied for each test: no path on the board or in git is absolute."""
    from tests.conftest import GIT_CONFIG

    root = tmp_path_factory.mktemp("made") / "repo"
    root.mkdir()
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(GIT_CONFIG)
    env = {"HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig")}
    for name in [name for name in os.environ if name.startswith("LIZA_")]:
        env[name] = ""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value) if value else patch.delenv(name)
        git(root, "init", "-q", "-b", "main")
        commit_all(root, "first", {"spec.md": "# What is wanted\n"})
        ok(["init", "Have a thing", "--no-test"], root)
        ok([*ADD, "--id", "t1"], root)
        ok([*ADD, "--id", "t2", "--depends", "t1"], root)
    return root


ADD = ["task", "add", "--desc", "do it", "--done", "true", "--scope", "all", "--spec", "spec.md"]


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    shutil.copytree(made, root, symlinks=True)
    return root


def board(root: Path) -> bytes:
    return (root / ".liza" / "state.yaml").read_bytes()


def task(root: Path, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ok(["task", "show", task_id, "--json"], root))
    return found


NOT_THERE = [
    (["task", "show", "nope"], 1, "unknown-id", "no task 'nope'"),
    (["task", "show", "../x"], 2, "usage", "not a task id"),
    (["claim", "nope", "--agent", "coder-1"], 1, "unknown-id", "no task 'nope'"),
    (["claim", "t1", "--agent", "bob"], 2, "usage", "not an agent id"),
    (["claim", "t1"], 2, "usage", "--agent"),
    (["claim", "t2", "--agent", "coder-1"], 1, "refused", "waits for t1"),
    (["diff", "nope"], 1, "unknown-id", "no task"),
    (["diff", "t1"], 1, "refused", "it has no commit yet"),
    (["history", "nope"], 1, "unknown-id", "no task"),
    (["logs", "coder-9"], 1, "unknown-id", "no agent coder-9"),
    (["agents", "coder-9"], 1, "unknown-id", "no agent coder-9"),
    (["note", "--to", "nobody", "hello"], 1, "unknown-id", "neither an agent nor a task"),
    (["note", " "], 2, "usage", "the note is empty"),
    (["task", "list", "--status", "NOPE"], 2, "usage", "not a status"),
    (["merge", "t1"], 1, "refused", "only an approved task"),
    (["merge"], 1, "refused", "no approved task is ready"),
    (["verdict", "approve", "fine", "--task", "t1"], 1, "refused", "nothing to judge"),
    (["verdict", "perhaps", "fine", "--task", "t1"], 2, "usage", "not a verdict"),
    (["task", "unblock", "t1", "--answer", "x"], 1, "refused", "asks nothing"),
    (["task", "drop", "t1", "why"], 1, "refused", "depends on t1"),
    (["task", "drop", "t1", "why", "--cascade", "--unlink"], 2, "usage", "contradict"),
    (["task", "release", "t1"], 1, "refused", "only a claimed task"),
    (["programs", "show", "nope"], 2, "usage", "unknown program"),
    (["restore"], 2, "usage", "restore needs --last-good"),
    (["edit", "nonsense"], 2, "usage", "cannot be edited"),
    (["edit"], 2, "usage", "EDITOR is not set"),
    (["lock", "--", "no-such-command"], 5, "missing", "cannot be run"),
    (["sync", "no-such-branch"], 1, "unknown-id", "no branch"),
    (["frobnicate"], 2, "usage", "no such command"),
    (["run", "t1"], 2, "usage", "is a task"),
    (["run", "Write it"], 2, "usage", "makes a task of it"),
    (["task", "list", "--status", "done"], 2, "usage", "did you mean MERGED?"),
    (["down", "coder-4"], 1, "unknown-id", "no agent coder-4"),
    (["status", "--frobnicate"], 2, "usage", "no such option"),
    (["config", "set", "lease_duration", "-3"], 2, "usage", "type -- before it"),
    (["config", "set", "lease_duration", "--", "-3"], 2, "usage", "is -3, expected 0 to"),
    (["config", "set", "integration_branch", "../x"], 2, "usage", "expected a name of a branch"),
    (["report", "trade_off", "t", "--detail", "text=x", "--detail", "what=x"], 2, "usage", "cannot be named text"),
]


@pytest.mark.sample(10)
@pytest.mark.parametrize(("words", "code", "kind", "says"), NOT_THERE, ids=[" ".join(case[0]) for case in NOT_THERE])
def test_a_bad_argument_is_explained_and_changes_nothing(
    crew: Path, here: Here, words: list[str], code: int, kind: str, says: str
) -> None:
    before = board(crew)
    cut = words.index("--") if "--" in words else len(words)
    done = here([*words[:cut], "--json", *words[cut:]])
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["code"], done.stdout) == (code, kind, "")
    assert says in error["message"]
    assert error["hint"]
    assert board(crew) == before


BAD_TASKS = [
    (["--desc", "x"], "", 2, "--id is missing"),
    (["--id", "a b"], "", 2, "not a task id"),
    (["--id", "a" * 65], "", 2, "not a task id"),
    (["--id", "t1"], "", 1, "a task t1 already"),
    (["--id", "n", "--depends", "zzz"], "", 1, "zzz, which is not on the board"),
    (["--id", "n", "--depends", "n"], "", 1, "wait for itself"),
    (["--id", "n", "--priority", "0"], "", 2, "priority"),
    (["--id", "n", "--priority", "x"], "", 2, "--priority"),
    (["--id", "n", "--file", "-"], "[]", 2, "--file cannot be combined"),
    (["--file", "/no/such/file"], "", 5, "file not found"),
    (["--file", "-"], "- id: [1", 2, "does not parse"),
    (["--file", "-"], "- {id: n, colour: red}", 2, "'colour' is not a field"),
    (["--file", "-"], "", 2, "with the fields of a task"),
    (["--file", "-"], "- {id: n}\n- {id: t1}\n", 1, "a task t1 already"),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("words", "stdin", "code", "says"), BAD_TASKS)
def test_a_bad_task_also_refuses_good_ones_beside_it(
    crew: Path, here: Here, words: list[str], stdin: str, code: int, says: str
) -> None:
    before = board(crew)
    done = here(["task", "add", *words], stdin)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert done.stderr.startswith("liza: ")
    assert "\n  next: " in done.stderr
    assert board(crew) == before


def test_task_texts_may_hold_quotes_brief_marks_and_200_kb(crew: Path) -> None:
    odd = 'it\'s "$(touch /tmp/x)" `y` <!-- liza:end run=coder-1.1 --> \t ünïcode 日本\n# no comment\n- no: item'
    tasks = json.dumps([{"id": "odd", "description": odd, "scope": "x" * 200_000, "draft": True}])
    ok(["task", "add", "--file", "-", "--json"], crew, stdin=tasks)
    found = task(crew, "odd")
    assert found["description"] == odd
    assert len(found["scope"]) == 200_000
    ok(["validate"], crew)


def test_an_uncommitted_file_is_no_spec_for_a_task(crew: Path) -> None:
    (crew / "new.md").write_text("not committed\n")
    added = json.loads(ok(["task", "add", "--id", "n", *ADD[2:-1], "new.md", "--json"], crew))
    lacks = ["spec new.md is not committed on integration"]
    assert (added["status"], added["missing"]) == ("DRAFT", {"n": lacks})
    shown = task(crew, "n")
    assert (shown["status"], shown["missing"]) == ("DRAFT", lacks)
    told = ok(["task", "edit", "n", "--priority", "1"], crew)
    step = "git add new.md && git commit -m 'Add new.md' new.md && liza sync"
    assert told == f"n stays a draft: {lacks[0]}\nnext: {step}\n"


OUTSIDE_A_RUN = [
    ["ready"],
    ["submit"],
    ["heartbeat"],
    ["exit", "0"],
    ["block", "why", "--ask", "q?"],
    ["handoff", "done", "--next", "go on"],
    ["verdict", "approve", "fine"],
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", OUTSIDE_A_RUN, ids=" ".join)
def test_an_agents_word_outside_a_run_is_refused(crew: Path, here: Here, words: list[str]) -> None:
    before = board(crew)
    done = here(words)
    assert done.returncode == 1
    assert "neither a session nor a claimed worktree" in done.stderr
    assert board(crew) == before


def test_an_agents_command_from_a_foreign_run_is_refused(crew: Path, here: Here) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    before = board(crew)
    for words in (
        ["ready"],
        ["submit"],
        ["heartbeat"],
        ["block", "why", "--ask", "q?"],
        ["handoff", "x", "--next", "y"],
    ):
        done = here([*words, "--json"], LIZA_RUN="coder-1.7", LIZA_TASK="t1", LIZA_ROOT=str(crew))
        assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (1, "not-yours"), words
    assert board(crew) == before


def test_a_persons_word_inside_a_session_is_refused(crew: Path, here: Here) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    before = board(crew)
    inside = {"LIZA_RUN": "coder-1.1", "LIZA_TASK": "t1", "LIZA_ROOT": str(crew)}
    for words in (
        ["pause"],
        ["merge"],
        ["lock", "--", "true"],
        ["note", "hi"],
        ["task", "drop", "t2", "why"],
        ["sync"],
    ):
        done = here(words, **inside)
        assert (done.returncode, "for a person" in done.stderr) == (1, True), (words, done.stderr)
    assert board(crew) == before


def test_outside_a_crew_commands_give_one_answer_and_next_step(tmp_path: Path) -> None:
    for words in (["status"], ["task", "list"], ["ready"], ["validate"], ["logs", "coder-1"]):
        done = say(words, tmp_path)
        assert (done.returncode, done.stdout) == (5, "")
        assert f"{tmp_path} is not in a git repository" in done.stderr
        assert "next: git init && git add -A && " in done.stderr
    git(tmp_path, "init", "-q")
    done = say(["status"], tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert "there is no .liza" in done.stderr
    assert "next: liza init" in done.stderr


def test_validate_works_outside_a_crew_and_prints_every_violation(crew: Path, tmp_path: Path) -> None:
    text = board(crew).decode()
    broken = tmp_path / "board.yaml"
    broken.write_text(text.replace("priority: 3", "priority: 3").replace("depends_on", "depends_on", 1) + "\n")
    assert say(["validate", str(broken)], tmp_path).returncode == 0
    wrong = text.replace('id: "t1"', 'id: "t 1"').replace("  status: OK", "  status: PERHAPS")
    assert wrong != text
    broken.write_text(wrong)
    done = say(["validate", str(broken), "--json"], tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["valid"]) == (1, False)
    assert {one["entry"] for one in found["violations"]} >= {"t 1", "t2"}
    broken.write_text(text.replace("status: UNCLAIMED", "status: UNCLAIMD").replace("  status: OK", "  status: [1]"))
    done = say(["validate", str(broken), "--json"], tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["readable"]) == (4, False)
    assert [one["entry"] for one in found["violations"]] == ["t1", "t2", "circuit_breaker"]
    assert found["violations"][0]["found"] == "'UNCLAIMD'"
    assert found["violations"][0]["wanted"].startswith("one of DRAFT, UNCLAIMED, ")
    broken.write_text("tasks: [\n")
    assert say(["validate", str(broken)], tmp_path).returncode == 4
    assert say(["validate", str(tmp_path / "nothing.yaml")], tmp_path).returncode == 5


def test_validate_reports_an_unreadable_board_as_every_command_does(crew: Path, here: Here) -> None:
    place = crew / ".liza" / "state.yaml"
    place.write_bytes(board(crew).replace(b"    done_when:", b"    priority: 77\n    done_when:"))
    done = here(["validate"])
    assert (done.returncode, done.stdout.rpartition("\n")[0].splitlines()[-1]) == (1, "next: liza edit")
    whole = board(crew)
    for odd, said in (
        (whole.replace(b"UNCLAIMED", b"UNCLAIMD"), "t1: status is 'UNCLAIMD', wanted one of DRAFT, UNCLAIMED, "),
        (whole[: whole.index(b"config:")], "the end of .liza/state.yaml is missing"),
        (b"\xff", "not UTF-8"),
    ):
        place.write_bytes(odd)
        done = here(["validate"])
        assert (done.returncode, said in done.stdout) == (4, True), done
        assert "next: liza " in done.stdout
    place.unlink()
    done = here(["validate"])
    assert (done.returncode, "is gone" in done.stderr) == (4, True)
    assert "next: liza restore --last-good" in done.stderr


@pytest.mark.sample(2)
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_standard_stream_changes_no_file(crew: Path, closed: str) -> None:
    """The number of a closed stream goes to the next file that is opened, and output would be written into it."""
    done = subprocess.run(["sh", "-c", f'exec "$0" note hello {closed}', str(BIN / "liza")], cwd=crew, timeout=60)
    assert done.returncode == 0
    assert "hello" in (crew / ".liza/state.yaml").read_text()
    assert say(["validate"], crew).returncode == 0


def test_exactly_one_of_several_claimers_gets_task_with_its_lease(crew: Path) -> None:
    claimers = [
        subprocess.Popen(
            [str(BIN / "liza"), "claim", "t1", "--agent", f"coder-{number}", "--json"],
            cwd=crew,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2, 3)
    ]
    told = [(one, *one.communicate(timeout=60)) for one in claimers]
    codes = sorted(one.returncode for one, _, _ in told)
    assert codes == [0, 1, 1], [said for _, _, said in told]
    won = next(json.loads(out) for one, out, _ in told if one.returncode == 0)
    found = task(crew, "t1")
    assert (found["status"], found["run"], found["lease_expires"]) == ("CLAIMED", won["run"], won["lease_expires"])
    assert Path(won["worktree"]).is_dir()


def test_status_has_what_outside_callers_rely_on(crew: Path) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    ok(["pause", "lunch"], crew)
    found = json.loads(ok(["status", "--json"], crew))
    assert found.keys() >= {"goal", "sprint", "signals", "tasks", "agents", "alerts", "cost"}
    assert found["signals"] == ["PAUSE"]
    assert [one["id"] for one in found["tasks"]] == ["t1", "t2"]
    assert found["tasks"][0]["review_commit"] is None
    agent = found["agents"][0]
    assert agent.keys() >= {"id", "role", "status", "run", "current_task", "lease_expires", "program", "why"}
    assert (agent["id"], agent["role"], agent["status"], agent["current_task"]) == ("coder-1", "coder", "WORKING", "t1")
    assert "Have a thing" in ok(["status"], crew)
    assert json.loads(ok(["resume", "--json"], crew))["result"] == "changed"
    assert json.loads(ok(["resume", "--json"], crew))["result"] == "unchanged"


def test_programs_are_listed_with_whether_they_are_here(crew: Path) -> None:
    rows = json.loads(ok(["programs", "list", "--json"], crew))["programs"]
    assert all(row.keys() >= {"name", "installed", "version"} for row in rows)
    assert "script" in {row["name"] for row in rows}


def test_a_coders_changes_are_shown_before_and_after_committing(crew: Path) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    place = worktree_of(crew, "t1").resolve()
    (place / "spec.md").write_text("# What was made\n")
    (place / "new.txt").write_text("new\n")
    found = json.loads(ok(["diff", "t1", "--json"], crew))
    assert "+# What was made" in found["diff"]
    assert found["untracked"] == ["new.txt"]
    commit_all(place, "made")
    ok(["submit"], place)
    shown = ok(["diff", "t1"], crew)
    assert "+# What was made" in shown
    assert "+new" in shown
    assert "READY_FOR_REVIEW" in ok(["history", "t1", "--all"], crew)


def test_a_diff_shows_file_names_as_they_are_written(crew: Path) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    worktree = worktree_of(crew, "t1").resolve()
    (worktree / "größe.txt").write_text("10\n")
    git(worktree, "add", "-A")
    assert "b/größe.txt" in ok(["diff", "t1"], crew)
    git(worktree, "commit", "-q", "-m", "Add the size")
    ok(["submit"], worktree)
    assert "b/größe.txt" in ok(["diff", "t1"], crew)
    assert " größe.txt | 1 +" in ok(["diff", "t1", "--stat"], crew)


@pytest.mark.parametrize("words", [["edit"], ["edit", "goal"], ["edit", "--goal"]], ids=" ".join)
def test_the_hint_about_a_missing_editor_repeats_the_typed_command(
    here: Here, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    assert here(words).stderr.splitlines()[-1] == f"  next: EDITOR='code --wait' liza {' '.join(words)}"


def test_lock_reports_broken_rules_and_keeps_the_exit_code(crew: Path, here: Here) -> None:
    def ran(script: str) -> tuple[int, str]:
        done = here(["lock", "--", "sh", "-c", f"sed -i {script} .liza/state.yaml; exit 7"])
        return done.returncode, done.stderr

    assert ran("'s/lease_duration: .*/lease_duration: 600/'") == (7, "")
    code, told = ran("'s/done_when: .*/priority: 77/'")
    assert (code, told.splitlines()) == (
        7,
        [
            "liza: the changes of the command are kept, and break 4 rules that held before:",
            "    t1: priority is 77, wanted 1 to 9",
            "    t1: done_when is missing, wanted a value, because it is UNCLAIMED",
            "    t2: priority is 77, wanted 1 to 9",
            "    and 1 more",
            "  next: liza edit",
        ],
    )
    assert ran("'s/scope: .*/scope: some/'") == (7, "")
    code, told = ran("'s/status: UNCLAIMED/status: MERGED/; s/^goal:/gaol:/'")
    assert (code, "state.yaml has no goal" in told, "liza restore --last-good" in told) == (7, True, True)


def test_a_command_under_the_lock_excludes_others(crew: Path) -> None:
    assert say(["lock", "--", "sh", "-c", "exit 7"], crew).returncode == 7
    assert say(["lock", "--", "sh", "-c", "kill -9 $$"], crew).returncode == 137
    script = "flock -n .liza/state.yaml.lock true && echo free || echo taken"
    assert ok(["lock", "--", "sh", "-c", script], crew) == "taken\n"


def test_an_edit_is_merged_by_entry_or_kept_when_bad(crew: Path) -> None:
    editor = crew.parent / "editor.sh"
    editor.write_text(
        f"#!/bin/sh\n{BIN / 'liza'} note 'written meanwhile'\nsed -i 's/priority: 4/priority: 2/' \"$1\"\n"
    )
    editor.chmod(0o755)
    ok([*ADD, "--id", "t3", "--priority", "4"], crew)
    ok(["edit"], crew, EDITOR=str(editor))
    assert task(crew, "t3")["priority"] == 2
    assert b"written meanwhile" in board(crew)
    before = board(crew)
    done = say(["edit"], crew, EDITOR="sed -i 's/priority: 2/priority: 99/'")
    assert done.returncode == 4
    assert "your copy is kept in" in done.stderr
    assert board(crew) == before


def test_an_entry_changed_on_both_sides_is_shown_and_unwritten(crew: Path) -> None:
    editor = crew.parent / "editor.sh"
    editor.write_text(f"#!/bin/sh\n{BIN / 'liza'} task edit t1 --desc 'theirs' && sed -i 's/do it/mine/' \"$1\"\n")
    editor.chmod(0o755)
    done = say(["edit"], crew, EDITOR=str(editor))
    assert done.returncode == 1
    assert "mine" in done.stderr
    assert "theirs" in done.stderr
    assert task(crew, "t1")["description"] == "theirs"


def test_a_broken_board_stops_every_command_until_it_is_restored(crew: Path) -> None:
    good = board(crew)
    (crew / ".liza" / "state.yaml").write_bytes(good + b"tasks: [\n")
    done = say(["status", "--json"], crew)
    error = json.loads(done.stderr)["error"]
    assert (done.returncode, error["hint"]) == (4, "liza restore --last-good")
    assert "state.yaml:" in error["message"]
    assert say(["note", "hi"], crew).returncode == 4
    assert board(crew) == good + b"tasks: [\n"
    told = ok(["restore", "--last-good"], crew)
    kept = re.search(r"is kept in (\.liza/tx/broken-\S+\.yaml)", told)
    assert "revision 3 is restored as revision 4: Have a thing" in told
    assert kept is not None
    assert (crew / kept[1]).read_bytes() == good + b"tasks: [\n"
    assert [one["id"] for one in json.loads(ok(["task", "list", "--json"], crew))["tasks"]] == ["t1", "t2"]
    assert json.loads(ok(["restore", "--last-good", "--json"], crew))["result"] == "unchanged"


def test_sync_merges_a_persons_commit_and_leaves_the_checkout_alone(crew: Path) -> None:
    commit_all(crew, "mine", {"mine.txt": "mine\n"})
    said = json.loads(ok(["sync", "--json"], crew))
    assert (said["result"], said["tested"]) == ("changed", False)
    assert git(crew, "show", "integration:mine.txt") == "mine"
    assert git(crew, "status", "--porcelain") == ""
    assert json.loads(ok(["sync", "--json"], crew))["result"] == "unchanged"


def test_a_follower_sees_the_present_state_and_then_each_change(crew: Path) -> None:
    followed = {"status": ["status", "--watch", "--json"], "history": ["history", "-f", "--json"]}
    processes = {
        name: subprocess.Popen([str(BIN / "liza"), *words], cwd=crew, stdout=subprocess.PIPE, text=True)
        for name, words in followed.items()
    }
    try:
        first = json.loads(_line(processes["status"]))
        told = [json.loads(_line(processes["history"])) for _ in range(first["revision"])]
        assert [one["revision"] for one in told] == list(range(1, first["revision"] + 1))
        ok(["note", "look here"], crew)
        assert json.loads(_line(processes["status"]))["revision"] == first["revision"] + 1
        assert json.loads(_line(processes["history"]))["revision"] == first["revision"] + 1
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGINT)
    assert [process.wait(timeout=60) for process in processes.values()] == [130, 130]


def test_a_runs_output_is_shown_and_followed_into_another_run(crew: Path) -> None:
    ok(["claim", "t1", "--agent", "coder-1"], crew)
    runs = crew / ".liza" / "run" / "coder-1"
    (runs / "coder-1.1").mkdir(parents=True)
    output = runs / "coder-1.1" / "output.log"
    output.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert ok(["logs", "coder-1", "-n", "2"], crew) == "line 998\nline 999\n"
    process = subprocess.Popen(
        [str(BIN / "liza"), "logs", "coder-1", "-n1", "-f"], cwd=crew, stdout=subprocess.PIPE, text=True
    )
    try:
        assert _line(process) == "line 999\n"
        with output.open("a") as file:
            file.write("more\n")
        assert _line(process) == "more\n"
        (runs / "coder-1.2").mkdir()
        (runs / "coder-1.2" / "output.log").write_text("the next run\n")
        ok(["note", "so that the board changes, as it does when a run is taken"], crew)
        assert [_line(process) for _ in range(3)] == ["\n", "── coder-1.2 ──\n", "the next run\n"]
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


INITS = {
    "bare": (lambda at: git(at, "init", "-q", "--bare"), 1, "bare"),
    "no repository": (lambda at: None, 5, "repository"),
    "unborn": (lambda at: git(at, "init", "-q"), 5, "no commit"),
}


@pytest.mark.parametrize("name", INITS)
def test_init_refuses_an_unusable_directory_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    make, code, says = INITS[name]
    make(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    done = say(["init", "A goal"], tmp_path)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_init_refuses_detached_heads_missing_identities_and_uncommitted_specs(repo: Path) -> None:
    (repo / "goal.md").write_text("goal\n")
    done = say(["init", "--spec", "goal.md"], repo)
    assert (done.returncode, "not committed" in done.stderr) == (1, True)
    nobody = repo.parent / "nobody"
    nobody.write_text("[user]\n\tuseConfigOnly = true\n")
    done = say(["init", "A goal"], repo, GIT_CONFIG_GLOBAL=str(nobody))
    assert (done.returncode, "identity" in done.stderr) == (5, True)
    git(repo, "checkout", "-q", "--detach")
    done = say(["init", "A goal"], repo)
    assert (done.returncode, "detached" in done.stderr) == (1, True)
    assert not (repo / ".liza").exists()


def test_init_leaves_a_dirty_checkout_as_it_is(repo: Path) -> None:
    (repo / "README.md").write_text("changed\n")
    (repo / "new.txt").write_text("new\n")
    before = git(repo, "status", "--porcelain")
    ok(["init", "A goal", "--no-test", "--json"], repo)
    assert git(repo, "status", "--porcelain") == before
    assert (repo / "README.md").read_text() == "changed\n"


def test_a_program_that_is_not_installed_stops_up_at_once(crew: Path) -> None:
    before = board(crew)
    done = say(["up", "--program", "script:./no-such-agent"], crew)
    assert (done.returncode, "no-such-agent" in done.stderr) == (5, True)
    assert board(crew) == before


def test_help_lists_twelve_commands_and_help_all_lists_all(tmp_path: Path) -> None:
    short = ok([], tmp_path)
    assert ok(["--help"], tmp_path) == ok(["help"], tmp_path) == short
    listed = re.findall(r"(?m)^  (\w+(?: \w+)?) {2,}\S", short)
    assert listed == [
        *("demo", "doctor", "init", "start", "up", "status", "answer", "diff", "logs", "land", "down", "task add")
    ]
    assert "liza help --all" in short.splitlines()[-1]
    text = ok(["help", "--all"], tmp_path)
    rows = json.loads(ok(["help", "--json"], tmp_path))["commands"]
    assert {row["command"] for row in rows} > {*listed, "claim", "queue move"}
    for row in rows:
        assert re.search(rf"(?m)^  {row['command']} {{2,}}{re.escape(row['help'])}$", text), row
        assert f"\n{row['group']}:\n" in text
    assert all(len(line) <= 80 for line in text.splitlines() + short.splitlines())
    assert ok(["help", "claim"], tmp_path) == ok(["claim", "--help"], tmp_path)
    assert "Example:" in ok(["help", "task", "add"], tmp_path)
    version = ok(["--version"], tmp_path)
    assert version.startswith("liza ")
    assert ok(["version"], tmp_path) == ok(["-V"], tmp_path) == version


def test_the_reference_matches_the_commands() -> None:
    written = (HERE / "specs" / "commands.md").read_text()
    assert written == reference(), "python -m liza.cli.reference > specs/commands.md"


def test_python_m_liza_is_the_same_program(crew: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "liza", "task", "list"], cwd=crew, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == ok(["task", "list"], crew)


def test_a_reader_that_goes_away_is_no_error(crew: Path) -> None:
    shell = f"{BIN / 'liza'} task show t1 --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=crew, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_bug_has_a_report_and_exit_code_70(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(words: object) -> int:
        raise ValueError("nobody thought of this")

    for _ in range(2):
        assert entry_points.run_reporting_errors(broken, ["status"], "liza") == 70
    told = capsys.readouterr()
    (report,) = reports.glob("liza-report-*.txt")
    assert str(report) in told.err
    assert "nobody thought of this" in report.read_text()
    assert told.out == ""


def test_ctrl_c_is_130_and_refusals_keep_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: object) -> int:
        raise KeyboardInterrupt

    def refused(words: object) -> int:
        raise Refused("it is Tuesday", "liza status")

    assert entry_points.run_reporting_errors(interrupted, [], "liza") == 130
    assert entry_points.run_reporting_errors(refused, [], "liza") == 1
    assert capsys.readouterr().err == "liza: it is Tuesday\n  next: liza status\n"
    assert entry_points.run_reporting_errors(refused, ["lock", "--", "--json"], "liza") == 1
    assert capsys.readouterr().err.startswith("liza: ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk_is_named_and_no_bug(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(words: Sequence[str]) -> int:
        raise OSError(number, os.strerror(number), "/somewhere/.liza/run/coder-1/coder-1.1/word")

    assert entry_points.run_reporting_errors(refused, ["submit"], "liza") == 5
    told = capsys.readouterr().err
    assert os.strerror(number) in told
    assert "bug" not in told


HELD_UP = [
    (BoardUnreadable("state.yaml:3:1: what is this?", "liza restore --last-good"), 4, True),
    (WriteFailed("the disk did not take it", "df -h ."), 5, True),
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere"), 5, True),
    (LockTimeout("the lock was not free", "liza status"), 75, True),
    (Missing("claude is not installed", "liza doctor"), 5, False),
    (Refused("it is Tuesday", "liza status"), 1, False),
    (GitFailed("git said no", "git status"), 3, False),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("error", "code", "noted"), HELD_UP, ids=[type(case[0]).__name__ for case in HELD_UP])
def test_a_verb_that_the_board_prevented_is_repeated_without_blame(
    error: Exception, code: int, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], usual_path: str,
) -> None:  # fmt: skip
    run = RunDir(Paths(tmp_path), "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=datetime.now(UTC)))
    said: list[Exception] = [error]

    def refused(words: Sequence[str]) -> int:
        if said:
            raise said.pop()
        return 0

    words = ["block", "why not", "--ask", "what?"]
    monkeypatch.setenv("LIZA_RUN", "coder-1.1")
    monkeypatch.setenv("LIZA_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", usual_path)
    assert entry_points.run_reporting_errors(refused, words, "liza") == code
    hint = capsys.readouterr().err.rstrip().rpartition("\n")[2]
    assert (hint == f"  next: sleep 20; {liza_path()} block 'why not' --ask 'what?'") is noted
    note = run.read_postponed()
    assert (note is not None and note.verb == "block") is noted
    assert entry_points.run_reporting_errors(refused, words, "liza") == 0
    assert run.read_postponed() is None


@pytest.mark.sample(2)
@pytest.mark.parametrize("run", ["", "merge", "coder-1.9", "../../x"])
def test_a_run_unknown_to_the_crew_gets_no_note(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], usual_path: str
) -> None:
    def refused(words: Sequence[str]) -> int:
        raise LockTimeout("the lock was not free", "liza status")

    monkeypatch.setenv("LIZA_RUN", run)
    monkeypatch.setenv("LIZA_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", usual_path)
    long = ["handoff", "x" * 300]
    assert entry_points.run_reporting_errors(refused, long, "liza") == 75
    told = capsys.readouterr().err
    assert "the lock was not free" in told
    assert told.endswith(
        "  next: liza status\n" if not run else f"next: sleep 20; {liza_path()} handoff … (the same arguments again)\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_hint_in_a_session_gives_the_path_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIZA_RUN", "coder-1.1")
    own, other = liza_path(), tmp_path / "liza"
    other.touch(mode=0o755)
    command, qualified = 'git commit, or: liza block "why"', f'git commit, or: {shlex.quote(str(own))} block "why"'
    for directories, hint in (
        ([own.parent, tmp_path], command),
        ([tmp_path / "empty", own.parent], command),
        ([tmp_path, own.parent], qualified),
        (["", own.parent], qualified),
        ([tmp_path / "empty"], qualified),
    ):
        monkeypatch.setenv("PATH", ":".join(map(str, directories)))
        assert qualify_command(command) == hint, directories
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setenv("LIZA_CONFINED", "yes")
    assert qualify_command(command) == qualified, "PATH of a caller in a box is not known"
    monkeypatch.delenv("LIZA_RUN")
    assert qualify_command(command) == command


def test_moved_integration_is_an_alarm_until_it_is_moved_back(crew: Path, here: Here) -> None:
    before = git(crew, "rev-parse", "integration")
    git(crew, "branch", "-f", "integration", git(crew, "commit-tree", "-m", "x", "-p", before, f"{before}^{{tree}}"))
    assert "was moved outside of liza" in here(["status"]).stdout
    git(crew, "branch", "-f", "integration", before)
    assert "was moved outside of liza" not in here(["status"]).stdout
