"""The project's own commands in a box: what they reach, how they end, and what their git may do."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.model.configuration import Config, Confinement, Network
from liza.model.paths import Paths
from liza.project import commands
from liza.project.commands import CommandOutcome
from tests.conftest import git, make_repository, until

pytestmark = pytest.mark.needs("bwrap")
SLEEP = f"sleep {200_000 + os.getpid()}"
"""Of this process alone: others run the same tests beside it."""
Run = Callable[..., CommandOutcome]


@pytest.fixture
def place(tmp_path: Path) -> Worktrees:
    """The merge slot of a crew without a board, in directories whose names have a space."""
    root = tmp_path / "the shop"
    make_repository(root, {"price.py": "PRICE = 1\n"})
    git(root, "tag", "v1")
    (root / ".liza").mkdir()
    (root / ".liza" / "state.yaml").write_text("secret: 1\n")
    worktrees = Worktrees(Paths(root, tmp_path / "its slots"), Git(root), "main")
    worktrees.paths.slots.mkdir()
    worktrees.detach("merge", "HEAD", "merge-t1")
    return worktrees


@pytest.fixture
def run(place: Worktrees) -> Run:
    """Run a command in a box of the merge slot."""
    slot_git = place.slot_git("merge")

    def start(
        command: str, *, network: Network = Network.ON, shared: tuple[str, ...] = (), limit: float = 60
    ) -> CommandOutcome:
        settings = Config(confinement=Confinement.REQUIRED, network=network, shared=shared)
        box = commands.open_box(place.paths, slot_git, settings)
        log = place.paths.root / ".liza" / "log" / "log"
        return commands.run_command(command, slot_git.directory, log, limit, place.paths.root, box=box)

    return start


def _is_green(outcome: CommandOutcome) -> bool:
    assert outcome.passed, outcome.tail()
    return True


def test_a_command_writes_its_worktree_and_nothing_else(place: Worktrees, run: Run, tmp_path: Path) -> None:
    root, home = place.paths.root, Path.home()
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key\n")
    (tmp_path / "its slots" / "s1").mkdir()
    refused = [root / "price.py", root / ".git" / "HEAD", home / "x", Path("/etc/x"), place.paths.slots / "s1" / "x"]
    script = [f"! echo x 2> /dev/null > {shlex.quote(str(path))} || exit 1" for path in refused]
    hidden = [home / ".ssh" / "id", root / ".liza" / "state.yaml", place.paths.slots / "s1"]
    script += [f"! test -e {shlex.quote(str(path))} || exit 2" for path in hidden]
    script += ["echo x > out && echo y > /tmp/y && echo z > /var/tmp/z && test -r ~/.gitconfig"]
    assert _is_green(run("\n".join(script)))
    assert (place.paths.slot("merge") / "out").read_text() == "x\n"
    assert git(root, "status", "--porcelain") == "?? .liza/"
    assert not Path("/tmp/y").exists()


def test_its_git_works_and_changes_nothing_of_the_repository(place: Worktrees, run: Run) -> None:
    root = place.paths.root
    before = (root / ".git" / "config").read_text(), git(root, "for-each-ref")
    script = (
        "test $(git describe --tags) = v1 && git config core.hooksPath .hooks && git stash list && git status --short"
        " && echo 'PRICE = 2' > price.py && git commit -qam two && git tag v2 && git gc -q"
        " && git update-ref refs/heads/main HEAD && git rev-parse main"
    )
    assert _is_green(run(script))
    assert ((root / ".git" / "config").read_text(), git(root, "for-each-ref")) == before


def test_the_next_commit_in_a_slot_has_its_own_git(place: Worktrees, run: Run) -> None:
    assert _is_green(run("git config shop.price 1 && git tag v2"))
    (place.paths.root / "price.py").write_text("PRICE = 2\n")
    git(place.paths.root, "commit", "-q", "-a", "-m", "second")
    place.detach("merge", "main", "merge-t2")
    commands.renew_git(place.paths, place.slot_git("merge"), Config(confinement=Confinement.REQUIRED))
    assert _is_green(run("! git config shop.price && ! git rev-parse -q --verify v2 && git diff --exit-code main"))


def test_later_commits_of_a_proof_keep_the_set_up_configuration(place: Worktrees, run: Run) -> None:
    slot_git, outside = place.slot_git("merge"), place.paths.root / "outside"
    outside.mkdir()
    own = shlex.quote(str(place.paths.box("merge").git / "info"))
    assert _is_green(run(f"git config shop.ready yes && rm -r {own} && ln -s {shlex.quote(str(outside))} {own}"))
    (place.paths.root / "price.py").write_text("PRICE = 2\n")
    git(place.paths.root, "commit", "-q", "-a", "-m", "second")
    slot_git.out("reset", "--quiet", "--hard", "main")
    commands.update_git(place.paths, slot_git, Config(confinement=Confinement.REQUIRED))
    assert _is_green(
        run("git config shop.ready && git diff --exit-code HEAD && test $(git log --format=%s -1) = second")
    )
    assert list(outside.iterdir()) == [], "no link of a command is followed"


def test_what_the_set_up_configured_lasts_until_it_runs_again(place: Worktrees, run: Run) -> None:
    slot_git, settings = place.slot_git("merge"), Config(confinement=Confinement.REQUIRED)
    hook = '"$(git rev-parse --git-common-dir)/hooks/pre-commit"'
    commands.begin_set_up(place.paths, slot_git, settings)
    assert _is_green(run(f"git config core.hooksPath .husky && git config shop.flag yes && echo exit > {hook}"))
    commands.end_set_up(place.paths, slot_git, settings)
    assert _is_green(run("git config shop.test 1 && git config shop.flag no"))
    commands.renew_git(place.paths, slot_git, settings)
    asked = f'test $(git config core.hooksPath) = .husky && test "$(git config shop.flag)" = yes && test -x {hook}'
    assert _is_green(run(f"{asked} && ! git config shop.test"))
    commands.begin_set_up(place.paths, slot_git, settings)
    assert _is_green(run(f"! git config core.hooksPath && ! test -e {hook}"))


@pytest.mark.parametrize(("kills", "code"), [(0, 0), (1, 0), (9, -signal.SIGKILL)])
def test_a_command_that_was_killed_is_retried_once(place: Worktrees, run: Run, kills: int, code: int) -> None:
    done = run(f"echo run >> runs; [ $(wc -l < runs) -gt {kills} ] || kill -9 $$; exit 0")
    assert done.exit_status == code
    assert len((place.paths.slot("merge") / "runs").read_text().splitlines()) == min(kills, 1) + 1


@pytest.mark.parametrize("code", [3, 127])
def test_an_exit_status_is_as_without_a_box(run: Run, code: int) -> None:
    assert run(f"exit {code}").exit_status == code


@pytest.mark.parametrize("end", ["true", SLEEP], ids=["at its end", "at its time limit"])
def test_what_a_command_started_is_over_with_it(place: Worktrees, run: Run, end: str) -> None:
    script = f"setsid env -i {SLEEP} & until pgrep -xf '{SLEEP}' > pids; do :; done; {end}"
    done = run(script, limit=60 if end == "true" else 3)
    assert done.exit_status == (0 if end == "true" else None)
    assert (place.paths.slot("merge") / "pids").read_text().split()
    assert _find_sleeps(place) == []


def test_a_command_whose_caller_was_killed_is_ended(place: Worktrees, tmp_path: Path) -> None:
    words = f"""
from pathlib import Path
from liza.project import commands
from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.model.configuration import Config, Confinement
from liza.model.paths import Paths
root = Path({str(place.paths.root)!r})
place = Worktrees(Paths(root, Path({str(place.paths.slots)!r})), Git(root), "main")
slot = place.slot_git("merge")
box = commands.open_box(place.paths, slot, Config(confinement=Confinement.REQUIRED))
commands.run_command("touch began; setsid env -i {SLEEP}", slot.directory, root / ".liza/log/log", 60, root, box=box)
"""
    caller = subprocess.Popen([sys.executable, "-c", words])
    until(lambda: (place.paths.slot("merge") / "began").exists(), "the command did not start")
    caller.kill()
    caller.wait()
    until(lambda: not _find_sleeps(place), "what the command started goes on")


def _find_sleeps(place: Worktrees) -> list[str]:
    """Return the processes of this test that still sleep in the slot."""
    pids = subprocess.run(["pgrep", "-xf", SLEEP], capture_output=True, text=True, check=False).stdout.split()
    return [pid for pid in pids if _directory(pid) == place.paths.slot("merge")]


def _directory(pid: str) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


@pytest.fixture
def outside() -> Iterator[str]:
    """The port of a server outside of the box."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


ASK = "python3 -c 'import socket, sys; socket.create_connection((\"127.0.0.1\", int(sys.argv[1])), 5)'"
SERVE = """\
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hi"), daemon=True).start()
assert socket.create_connection(server.getsockname(), 5).recv(2) == b"hi"
"""


@pytest.mark.parametrize("network", list(Network))
def test_config_network_off_leaves_loopback_working(place: Worktrees, run: Run, outside: str, network: Network) -> None:
    (place.paths.slot("merge") / "serve.py").write_text(SERVE)
    assert _is_green(run("python3 serve.py", network=network))
    assert run(f"{ASK} {outside}", network=network).passed is (network is Network.ON)


def test_sockets_and_directories_are_reached_only_if_shared(run: Run, tmp_path: Path) -> None:
    path, cache = tmp_path / "s" / "db.sock", Path.home() / ".cache" / "shop"
    path.parent.mkdir()
    cache.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        ask = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        script = f"{sys.executable} -c '{ask}' {path} && echo x > ~/.cache/shop/x"
        script += ' && test -e "$XDG_CACHE_HOME/shop/x"'
        assert not run(script).passed
        (tmp_path / "link").symlink_to(path.parent)
        assert _is_green(run(script, shared=(str(tmp_path / "link" / path.name), "~/.cache/shop")))
    assert (cache / "x").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a directory of another user")
def test_a_socket_in_another_users_closed_directory_is_no_obstacle(run: Run) -> None:
    closed = Path.home() / "closed"
    closed.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(closed / "s"))
        server.listen()
        os.utime(closed / "s", (0, 0))
        os.chown(closed, 12345, 12345)
        closed.chmod(0o700)
        assert _is_green(run("! test -e ~/closed/s"))


def test_a_shared_directory_above_the_repository_hides_the_crew(place: Worktrees, run: Run, tmp_path: Path) -> None:
    root, key = place.paths.root, Path.home() / ".ssh" / "id"
    key.parent.mkdir(parents=True)
    key.write_text("key\n")
    (place.paths.slots / "s1").mkdir()
    refused = [f"! echo x 2> /dev/null > {shlex.quote(str(root / name))}" for name in ("price.py", ".git/HEAD")]
    hidden = [
        f"! test -e {shlex.quote(str(path))}" for path in (key, root / ".liza/state.yaml", place.paths.slots / "s1")
    ]
    script = " && ".join((*refused, *hidden, f"echo x > {tmp_path}/x", "git status --short", "echo x > out"))
    assert _is_green(run(script, shared=(str(tmp_path), "~")))
    assert (tmp_path / "x").exists()
    assert git(root, "status", "--porcelain") == "?? .liza/"


def test_caches_of_package_managers_are_of_the_slot(place: Worktrees, run: Run) -> None:
    names = ("UV_CACHE_DIR", "npm_config_cache", "PIP_CACHE_DIR", "PRE_COMMIT_HOME", "XDG_CACHE_HOME", "CARGO_HOME")
    assert _is_green(run(" && ".join(f'mkdir -p "${name}" && touch "${name}/x"' for name in names)))
    assert {path.name for path in place.paths.box("merge").cache.iterdir()} >= {"uv", "npm", "pip", "pre-commit"}
    assert not (Path.home() / ".cache").exists()
    assert run('test -e "$UV_CACHE_DIR/x"').passed, "the next command finds the cache"


POOL = "import multiprocessing as m\nwith m.Pool(2) as pool:\n    assert pool.map(abs, [-1, -2]) == [1, 2]\n"


def test_processes_of_a_test_share_memory(place: Worktrees, run: Run) -> None:
    (place.paths.slot("merge") / "pool.py").write_text(POOL)
    assert _is_green(run("python3 pool.py && echo x > /dev/shm/x && cat /dev/shm/x"))
    assert run("test -e /dev/shm/x").exit_status == 1
