"""Set-up, tests and gates of a crew run in boxes: good work is merged, and hostile tests change nothing outside."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import git, worktree_of
from tests.journeys.crews import BIN, QUICK, WORK, Crew
from tests.journeys.test_true_tests import begun, write

pytestmark = pytest.mark.needs("bwrap")
SHOP = {
    "shop.py": "def price():\n    return 1\n",
    "test_shop.py": (
        "import unittest\nimport shop\n\n\n"
        "class Prices(unittest.TestCase):\n    def test(self):\n        self.assertEqual(shop.price(), 1)\n"
    ),
    "setup.sh": "test -d .git && exit 1\necho ready > ready\ngit config shop.ready yes\n",
    ".gitignore": "__pycache__/\nready\n",
    "connect.py": """\
import socket, sys
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    sys.exit(f"cannot connect to {sys.argv[1]}: {error}")
""",
    "ask.py": "import socket, sys\nsocket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()\n",
}
UNITTEST = "python3 -m unittest -q"
TESTS = f"test -f ready && {UNITTEST}"
SLOW = """\
import time, unittest


class Slow(unittest.TestCase):
    def test(self):
        open({!r}, "w").close()
        time.sleep(600)
"""
ATTACK = """\
import os, subprocess, unittest
from pathlib import Path

ROOT = Path(os.environ["LIZA_ROOT"])
NAMES = ("README.md", ".git/HEAD", ".git/config", ".git/refs/heads/integration", ".git/hooks/post-commit", "new")


class Attack(unittest.TestCase):
    def test_files_of_the_person(self):
        for path in (*(ROOT / name for name in NAMES), Path.home() / ".bashrc"):
            with self.assertRaises(OSError, msg=path), path.open("a") as file:
                file.write("x")

    def test_the_board_and_the_merger(self):
        self.assertEqual(list((ROOT / ".liza").iterdir()), [])
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
        self.assertFalse([line for line in words if b"merge" in line.split(b"\\0")])

    def test_refs_of_the_repository(self):
        for words in (["update-ref", "refs/heads/integration", "HEAD"], ["branch", "mine"], ["config", "a.b", "c"]):
            done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True)
            self.assertNotEqual(done.returncode, 0, words)
        subprocess.run(["git", "update-ref", "refs/heads/integration", "HEAD"], check=True)
        subprocess.run(["git", "config", "core.hooksPath", "/tmp"], check=True)

    def test_verbs(self):
        for words in (["merge"], ["config", "set", "push", "auto"], ["task", "add", "--id", "mine"]):
            self.assertNotEqual(subprocess.run(["liza", *words], capture_output=True, timeout=60).returncode, 0)
"""
KILL = "import os, unittest\n\n\nclass Kill(unittest.TestCase):\n    def test(self):\n        os.kill(-1, 9)\n"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Crew]:
    """A crew of a project with tests and a set-up, in boxes."""
    crew = begun(tmp_path, SHOP)
    words = ("--setup", "sh setup.sh", "--test", TESTS, "--confinement", "required")
    said = crew.liza("init", "Prices are right", *words)
    assert "proof     the tests fail when the sources of their own worktree fail" in said
    crew.configure(**{**QUICK, "confinement": "required", "shared": [str(crew.notes)]})
    try:
        yield crew
    finally:
        crew.clean()


def _approve(crew: Crew, task: str, files: dict[str, str], agent: str = "coder-1") -> None:
    crew.add(task)
    crew.liza("claim", task, "--agent", agent)
    there = worktree_of(crew.root, task)
    write(there, files)
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "looks ok", "--task", task)


def _read_outside(crew: Crew) -> tuple[object, ...]:
    """What no test may change: the person's files, branches, configuration and home directory."""
    refs = crew.git("for-each-ref", "refs/heads/main", "refs/heads/integration", "refs/tags")
    files = {str(path): path.read_bytes() for path in crew.root.iterdir() if path.is_file()}
    home = sorted(str(path) for path in Path.home().rglob("*"))
    return refs, files, (crew.root / ".git" / "config").read_text(), home


@pytest.mark.campaign
def test_a_branch_red_only_in_boxes_blames_no_task(tmp_path: Path) -> None:
    crew, path = begun(tmp_path, SHOP), tmp_path / "db.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        test = f"sh -c '{UNITTEST} && python3 connect.py {path}'"
        crew.liza("init", "Prices are right", "--test", test, "--confinement", "off")
        crew.configure(**QUICK)
        _approve(crew, "hello", {"hello.txt": "hello\n"})
        crew.liza("config", "set", "confinement", "required")
        crew.run("merge", "hello")
        assert crew.status("hello") == "APPROVED"
        (alarm,) = [alarm for alarm in crew.json("status")["alerts"] if alarm["kind"] == "merge_set_aside"]
        assert f"a box does not give what it needs: the socket {path}" in alarm["message"]
        share, merge = alarm["next"].split(" && ")
        assert share == f"liza config set shared {path}"
        crew.liza(*share.split()[1:])
        crew.liza(*merge.split()[1:])
    assert crew.status("hello") == "MERGED"


def test_a_test_that_attacks_the_crew_changes_nothing(shop: Crew) -> None:
    before = _read_outside(shop)
    _approve(shop, "attack", {"test_attack.py": ATTACK})
    shop.liza("merge", "attack")
    assert shop.status("attack") == "MERGED"
    assert shop.git("rev-parse", "integration^2", "integration:test_attack.py") == shop.git(
        "rev-parse", "task/attack", "task/attack:test_attack.py"
    )
    assert _read_outside(shop)[1:] == before[1:]
    assert shop.git("branch", "--list", "mine") == ""


@pytest.mark.campaign
def test_a_test_that_kills_every_process_ends_only_itself(shop: Crew) -> None:
    before = _read_outside(shop)
    _approve(shop, "kill", {"test_kill.py": KILL})
    shop.run("merge", "kill")
    assert shop.status("kill") == "INTEGRATION_FAILED"
    assert _read_outside(shop) == before
    assert shop.living() == []


@pytest.mark.campaign
def test_a_confined_agent_and_its_merge_use_the_set_up(shop: Crew) -> None:
    """The set-up runs in the box of the slot, and its results are there for the agent and for the tests."""
    shop.add("hello")
    agent = shop.script("agent", f"test -f ready\ncat ready > $NOTES/seen\n{TESTS}\n{WORK}")
    shop.agent("coder-1", agent)
    shop.wait_status("hello", "READY_FOR_REVIEW")
    assert shop.wait_note("seen") == "ready\n"
    assert "shop.ready" not in git(shop.root, "config", "--list")
    shop.liza("verdict", "approve", "looks ok", "--task", "hello")
    assert shop.wait_status("hello", "MERGED").tested is True


@pytest.mark.campaign
def test_boxes_fetch_submodules_and_tests_may_not_change_them(tmp_path: Path) -> None:
    with (Path.home() / ".gitconfig").open("a") as configured:
        configured.write('[protocol "file"]\n\tallow = always\n')
    lib = tmp_path / "lib"
    lib.mkdir()
    git(lib, "init", "-q", "-b", "main")
    write(lib, {"rate.py": "RATE = 1\n"})
    tests = SHOP["test_shop.py"].replace("import shop", "import sys\nsys.path.append('lib')\nimport rate, shop")
    crew = begun(tmp_path, {**SHOP, "test_shop.py": tests})
    git(crew.root, "submodule", "add", "-q", str(lib), "lib")
    write(crew.root, {})
    said = crew.liza("init", "Prices", "--test", UNITTEST, "--confinement", "required", "--share", str(lib))
    assert "set-up    git submodule update --init --recursive:" in said
    crew.configure(**{**QUICK, "confinement": "required", "shared": [str(lib), str(crew.notes)]})
    try:
        crew.add("hello")
        crew.agent("coder-1", crew.script("agent", f"cat lib/rate.py > $NOTES/seen\n{WORK}"))
        assert crew.wait_note("seen") == "RATE = 1\n"
        crew.wait_status("hello", "READY_FOR_REVIEW")
        crew.liza("verdict", "approve", "looks ok", "--task", "hello")
        assert crew.wait_status("hello", "MERGED").tested is True
        change = (
            "import unittest\n\n\nclass C(unittest.TestCase):\n    def test(self):\n        open('lib/rate.py', 'a')"
        )
        _approve(crew, "change", {"test_change.py": f"{change}.write('X = 1\\n')\n"}, agent="coder-2")
        crew.wait_status("change", "INTEGRATION_FAILED")
        assert "lib/rate.py" in crew.task("change").history[-1].detail
    finally:
        crew.clean()


@pytest.mark.campaign
def test_a_gate_without_the_network_reaches_no_server(shop: Crew) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask = f"python3 ask.py {server.getsockname()[1]}"
        near = {"name": "near", "command": f"sh -c '{UNITTEST} && {ask}'"}
        far = {"name": "far", "command": f"sh -c '{UNITTEST} && ! {ask}'", "network": "off"}
        shop.configure(gates=[near, far])
        _approve(shop, "hello", {"hello.txt": "hello\n"})
        shop.liza("merge", "hello")
    assert shop.status("hello") == "MERGED"


@pytest.mark.campaign
def test_a_killed_merger_with_a_boxed_test_leaves_no_process(shop: Crew) -> None:
    path = shop.notes / "began"
    _approve(shop, "slow", {"test_slow.py": SLOW.format(str(path))})
    merger = subprocess.Popen([str(BIN / "liza"), "merge", "slow"], cwd=shop.root, stdin=subprocess.DEVNULL)
    shop.children.append(merger)
    shop.wait(lambda _: path.exists(), "the test")
    merger.kill()
    merger.wait()
    shop.wait(lambda _: not [words for words in shop.living() if "unittest" in words], "the end of the test")
