"""`liza demo` as an installed command, in a clean HOME without a git identity: every test looks at one run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_actions_at_a_terminal import type_slowly
from tests.terminal_stand_in import TerminalStandIn

BIN = Path(sys.executable).parent
LIMIT = 170.0
RENEWED = re.compile(r"[-+] +(review_)?(lease_expires|heartbeat):")
"""Lines of a heartbeat: it is no revision, so the next one shows them."""
RIVALS = ("price-currency", "price-discount")

Facts = dict[str, Any]


def clean(home: Path) -> dict[str, str]:
    """The environment of a person who has just logged in, and has never used git."""
    kept = ("PATH", "USER", "LOGNAME", "LANG", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    return {**env, "HOME": str(home), "TZ": "UTC", "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}


def run(words: list[str], env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False
    )


def living(root: Path) -> list[str]:
    """The command lines of processes that belong to the crew of ``root``, by their environment or their directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environ = (place / "environ").read_bytes().split(b"\0")
            here = (place / "cwd").readlink()
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"LIZA_ROOT={root}".encode() in environ or here.is_relative_to(root):
            found.append(words)
    return found


def gather(place: Path) -> Facts:
    """Run the demo, look at everything that it left, and purge it."""
    home, root = place / "home", place / "my shop"
    home.mkdir()
    env = clean(home)
    done = run([str(BIN / "liza"), "demo", str(root)], env, place)
    facts: Facts = {"code": done.returncode, "out": done.stdout, "err": done.stderr, "living": living(root)}
    if not (root / ".liza").is_dir():
        return facts

    def git(*words: str) -> str:
        return run(["git", *words], env, root).stdout

    def liza(*words: str) -> Facts:
        said = run([str(BIN / "liza"), *words], env, root)
        return {"code": said.returncode, "out": said.stdout, "err": said.stderr}

    board = json.loads(liza("status", "--json")["out"])
    facts |= {
        "tasks": {task["id"]: task for task in board["tasks"]},
        "goal": board["goal"]["status"],
        "revision": board["revision"],
        "validate": liza("validate"),
        "words": {path.parent.name: path.read_text() for path in root.glob(".liza/run/*/*/word")},
        "exits": {path.parent.name: json.loads(path.read_text()) for path in root.glob(".liza/run/*/*/exit.json")},
        "head": git("rev-parse", "--abbrev-ref", "HEAD").strip(),
        "commits of main": git("log", "--format=%s", "main").splitlines(),
        "status": git("status", "--porcelain", "--untracked-files=all"),
        "staged": git("diff", "--cached", "--name-only"),
        "merges": git("log", "--first-parent", "--format=%s", "integration").splitlines(),
        "mail": git("show", "integration:shop/mail.py"),
        "subjects": git("log", "--reverse", "--format=%s", "liza/blackboard").splitlines(),
        "numbers": git(
            "log", "--reverse", "--format=%(trailers:key=Liza-Revision,valueonly,separator=)", "liza/blackboard"
        ).split(),
        "patches": git("log", "--reverse", "--format=%x00", "-p", "-U0", "liza/blackboard").split("\0")[1:],
        "journal": [
            json.loads(line[2:]) for line in (root / ".liza/log.yaml").read_text().splitlines() if line[:2] == "- "
        ],
        "briefs": git("grep", "-l", "liza:begin", *git("rev-list", "--branches").split()),
    }
    facts["purge"] = liza("down", "--purge")
    facts["after purge"] = {
        "left": sorted(path.name for path in root.iterdir()),
        "config": (root / ".git/config").read_text(),
        "exclude": (root / ".git/info/exclude").read_text(),
        "status": git("status", "--porcelain", "--untracked-files=all"),
        "merges": git("log", "--first-parent", "--format=%s", "integration").splitlines(),
    }
    return facts


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What one run left. Workers that share these tests share the run: the first one to come makes it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = shared / "demo.json"
        if not kept.exists():
            kept.write_text(json.dumps(gather(tmp_path_factory.mktemp("demo").resolve())))
        found: Facts = json.loads(kept.read_text())
    return found


def events(shown: Facts, task: str) -> list[str]:
    return [event["event"] for event in shown["tasks"][task]["history"]]


def in_order(wanted: list[str], found: list[str]) -> bool:
    rest: Iterator[str] = iter(found)
    return all(one in rest for one in wanted)


@pytest.mark.campaign
def test_the_demo_merges_every_task_and_reaches_its_goal(shown: Facts) -> None:
    assert shown["code"] == 0, shown["out"][-3000:] + shown["err"]
    assert {task["status"] for task in shown["tasks"].values()} == {"MERGED"}
    assert all(task["tested"] for task in shown["tasks"].values())
    assert shown["goal"] == "COMPLETED"
    assert shown["validate"]["code"] == 0, shown["validate"]
    assert shown["err"] == ""


def test_the_demo_ends_with_board_merges_and_three_commands(shown: Facts) -> None:
    board, _, rest = shown["out"].partition("\nMerged (")
    assert all(re.search(rf"^{task} +merged", board, re.MULTILINE) for task in shown["tasks"])
    assert all(subject in rest for subject in shown["merges"])
    assert len(re.findall(r"^  (?:\S*liza|git) ", rest.partition("Look around")[2], re.MULTILINE)) == 3


def test_a_task_waits_until_what_it_depends_on_is_merged(shown: Facts) -> None:
    assert shown["tasks"]["invoice-text"]["depends_on"] == ["invoice-model"]
    steps = [(one.get("task"), one.get("event")) for one in shown["journal"]]
    assert steps.index(("invoice-model", "merge")) < steps.index(("invoice-text", "reserve"))


def test_a_rejection_is_fixed(shown: Facts) -> None:
    assert in_order(
        ["claim", "submit", "reject", "claim", "submit", "approve", "merge"], events(shown, "invoice-model")
    )
    task = shown["tasks"]["invoice-model"]
    first, second = (event["commit"] for event in task["history"] if event["event"] == "submit")
    assert first != second == task["review_commit"]


def test_two_tasks_that_change_equal_lines_always_conflict(shown: Facts) -> None:
    failed = [name for name in RIVALS if "merge failed" in events(shown, name)]
    assert len(failed) == 1
    assert in_order(
        ["submit", "approve", "merge failed", "claim", "submit", "approve", "merge"], events(shown, failed[0])
    )
    said = next(event for event in shown["tasks"][failed[0]]["history"] if event["event"] == "merge failed")
    assert "shop/prices.py" in said["detail"]
    assert len({shown["tasks"][name]["base_commit"] for name in RIVALS}) == 1


def test_a_crash_is_resumed_by_its_coder_in_another_run(shown: Facts) -> None:
    history = shown["tasks"]["invoice-text"]["history"]
    assert in_order(["claim", "crash", "resume", "submit", "merge"], events(shown, "invoice-text"))
    crash = next(event for event in history if event["event"] == "crash")
    resume = next(event for event in history if event["event"] == "resume")
    assert shown["exits"][crash["run"]]["code"] == 1
    assert crash["agent"] == resume["agent"]
    assert crash["run"] != resume["run"]


def test_a_hand_off_exits_with_42_and_continues_fresh(shown: Facts) -> None:
    assert in_order(["claim", "handoff", "resume", "submit", "merge"], events(shown, "stock-reserve"))
    run = next(event["run"] for event in shown["tasks"]["stock-reserve"]["history"] if event["event"] == "handoff")
    assert shown["words"][run].strip() == "42"
    assert shown["exits"][run]["code"] == 42


def test_a_persons_answer_to_a_question_is_in_the_code(shown: Facts) -> None:
    task = shown["tasks"]["invoice-mail"]
    assert in_order(["claim", "block", "unblock", "claim", "submit", "merge"], events(shown, "invoice-mail"))
    assert task["answers"][0]["by"].startswith("human:")
    assert f'SENDER = "{task["answers"][0]["answer"]}"' in shown["mail"]


def test_integration_has_one_merge_for_each_task(shown: Facts) -> None:
    assert shown["merges"][-1] == "A small shop"
    assert sorted(subject.partition(":")[0] for subject in shown["merges"][:-1]) == sorted(
        f"Merge {task}" for task in shown["tasks"]
    )


def test_the_persons_checkout_and_index_are_as_they_were(shown: Facts) -> None:
    assert (shown["head"], shown["commits of main"]) == ("main", ["A small shop"])
    assert (shown["status"], shown["staged"]) == ("", "")


def test_history_has_one_small_commit_for_each_revision(shown: Facts) -> None:
    assert [int(number) for number in shown["numbers"]] == list(range(1, shown["revision"] + 1))
    assert len(shown["subjects"]) == shown["revision"]
    arrow = re.compile(r"[a-z-]+: [A-Z_]+ → [A-Z_]+ \((?:coder|code-reviewer|planner|human:|liza)[^ ]*\)")
    plain = re.compile(r"(?:[a-z-]+: )?[a-z ]+ \([^ ]+\)")
    assert all(arrow.fullmatch(one) or plain.fullmatch(one) for one in shown["subjects"]), shown["subjects"]
    assert any(
        re.fullmatch(r"invoice-model: CLAIMED → READY_FOR_REVIEW \(coder-[12]\.\d+\)", one) for one in shown["subjects"]
    )
    for subject, patch in list(zip(shown["subjects"], shown["patches"], strict=True))[1:]:
        changed = [line for line in patch.splitlines() if re.match(r"[-+](?![-+])", line) and not RENEWED.match(line)]
        assert 2 <= len(changed) <= (130 if subject.startswith("add") else 24), (subject, changed)


def test_no_commit_on_any_branch_holds_a_brief(shown: Facts) -> None:
    assert shown["briefs"] == ""


def test_nothing_is_left_running(shown: Facts) -> None:
    assert shown["living"] == []


def test_a_purge_leaves_the_project_and_what_was_merged(shown: Facts) -> None:
    after = shown["after purge"]
    assert shown["purge"]["code"] == 0, shown["purge"]
    assert after["left"] == [".git", ".gitignore", "AGENTS.md", "README.md", "docs", "shop", "tests"]
    assert "liza" not in after["config"].replace("demo@liza.invalid", "")
    assert "liza" not in after["exclude"]
    assert after["status"] == ""
    assert after["merges"] == shown["merges"]


def test_a_directory_with_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = run([str(BIN / "liza"), "demo", str(tmp_path)], dict(os.environ), tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, Callable[[], str]]]:
    """A demo at whose beginning the first task has been claimed; its directory, and what else it says to the end."""
    root = tmp_path.resolve() / "shop"
    child = subprocess.Popen(
        [str(BIN / "liza"), "demo", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    told = next((line for line in child.stdout if "working as" in line), None)
    assert told is not None, child.communicate()[1]
    yield child, root, lambda: "".join(child.communicate(timeout=LIMIT))
    if child.poll() is None:
        child.kill()
        child.wait()


@pytest.mark.campaign
def test_an_interrupted_demo_stops_all_that_it_started(
    begun: tuple[subprocess.Popen[str], Path, Callable[[], str]],
) -> None:
    child, root, rest = begun
    assert living(root) != []
    child.send_signal(signal.SIGINT)
    said = rest()
    assert child.returncode == 130, said
    assert living(root) == []


@pytest.mark.campaign
def test_at_a_terminal_the_question_is_left_to_the_person(tmp_path: Path) -> None:
    pytest.importorskip("textual")
    home, root = tmp_path / "home", tmp_path / "shop"
    home.mkdir()
    env = clean(home)
    liza = BIN / "liza"
    with TerminalStandIn([liza, "demo", root], tmp_path, (120, 50), env=env) as demo:
        demo.wait_for_text("answer it", LIMIT)
        with TerminalStandIn([liza, "ui"], root, env=env) as picture:
            picture.wait_for_text("invoice-mail")
            picture.wait_for_text("waits for you")
            type_slowly(picture, "na")
            picture.wait_for_text("enter sends")
            type_slowly(picture, "me@shop")
            picture.type("\r")
            picture.wait_for_text("answered")
            type_slowly(picture, "q")
            assert picture.process.wait(20) == 0
        assert demo.process.wait(LIMIT) == 0
    mail = run(["git", "show", "integration:shop/mail.py"], env, root).stdout
    assert 'SENDER = "me@shop"' in mail
