"""The box itself: what can be done from inside, as root and as an ordinary user, how it ends, and why there is none."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.box import slot_directories, support, surroundings
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import build_slot_box
from liza.box.support import Support
from liza.git.run_git import make_run_git
from liza.git.runner import Git
from liza.model.paths import Paths
from liza.system import peers
from tests.conftest import git, make_repository

pytestmark = pytest.mark.needs("bwrap")

ORDINARY = 2043
"""The number of a user who is not root. It needs no entry in the user database."""
OLD = 1_000_000_000.0
"""Seconds since 1970: the time of a socket that was not made just now."""


class Site:
    """A repository of a person with a crew that has two slots, a home with secrets, and what listens outside."""

    def __init__(self, top: Path, uid: int, slots: Path | None = None) -> None:
        self.top, self.uid = top, uid
        self.home, self.root = top / "home", top / "my project: ä"
        self.paths = Paths(self.root, slots or top / "my project: ä.worktrees")
        self.slot = self.paths.slot("s1")

    def make(self) -> None:
        for path in (".ssh", ".gnupg", ".config/gh", ".own/gh"):
            (self.home / path).mkdir(parents=True)
            (self.home / path / "secret").write_text("SECRET\n")
        (self.home / ".netrc").write_text("password SECRET\n")
        (self.home / ".npmrc").write_text("registry=https://npm.example/\n//npm.example/:_authToken=SECRET\n")
        (self.home / ".bashrc").write_text("# mine\n")
        (self.home / ".gitconfig").write_text("[user]\n name = A\n email = a@b.example\n[gc]\n auto = 0\n")
        (self.home / ".state/liza").mkdir(parents=True)
        (self.home / ".state/liza/mark").write_text("SECRET\n")
        make_repository(self.root, {"README.md": "one\n"})
        git(self.root, "branch", "integration")
        (self.root / ".liza/run").mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: self.uid)
            directories = surroundings.list_private_directories(self.home)
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "socket").write_text("SECRET\n")
        (self.root / ".liza/state.yaml").write_text("SECRET\n")
        os.mkfifo(self.root / ".liza/fifo")
        for name in ("s1", "s2"):
            git(self.root, "worktree", "add", "-q", "-b", f"task/{name}", str(self.paths.slot(name)))
            own = slot_directories.prepare_directories(self.paths, name, self.home)
            make_run_git(Git(self.paths.slot(name)), own)
        if self.uid != os.geteuid():
            subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", str(self.top)], check=True)

    def wrap(self, words: Sequence[str], *, has_network: bool = True, more: Sequence[Mount] = ()) -> list[str]:
        """The command line of a box, as Liza makes it when this user runs it."""
        program = support.find_program()
        assert program is not None
        environ = self.environ()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: self.uid)
            # Root sees sockets that another user would not: only those of this test count.
            listening = {
                number: name for number, name in peers.list_unix_listening().items() if name.startswith(str(self.top))
            }
            patch.setattr(peers, "list_unix_listening", lambda: listening)
            around = surroundings.read_surroundings(str(Path(program).resolve()), self.paths, environ)
            return build_slot_box(around, "s1", shared=tuple(more), has_network=has_network).wrap(words)

    def environ(self, **more: str) -> dict[str, str]:
        own = self.paths.box("s1")
        return {
            "HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8",
            "CACHE": str(own.cache), "STATE": str(own.state), "BOXES": str(own.directory.parent),
            "REPO": str(self.root), "SLOTS": str(self.paths.slots), "SLOT": str(self.slot), "PYTHON": self.python,
            **more,
        }  # fmt: skip

    def run(self, argv: Sequence[str], typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self.environ(**more), input=typed, capture_output=True, text=True, timeout=100, cwd="/",
            **self.identity(),
        )  # fmt: skip

    @property
    def python(self) -> str:
        """An interpreter that this user can run: that of the tests may be in the home of root."""
        for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            with suppress(OSError):
                if subprocess.run([path, "-c", ""], capture_output=True, **self.identity()).returncode == 0:
                    return path
        pytest.skip("this user cannot run a Python")

    def identity(self) -> dict[str, int | list[int]]:
        return {} if self.uid == os.geteuid() else {"user": self.uid, "group": self.uid, "extra_groups": []}

    def contents(self) -> dict[str, str]:
        """Everything of the person, but what the box of the first slot may write."""
        own = self.paths.box("s1")
        allowed = (self.slot, own.git, own.tmp, own.cache, own.state, own.liza)
        found = {}
        for path in sorted(self.top.rglob("*")):
            if not any(path.is_relative_to(part) for part in allowed):
                status = path.lstat()
                is_file = path.is_file() and not path.is_symlink()
                data = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
                found[str(path)] = f"{status.st_mode:o} {status.st_uid} {status.st_mtime_ns if is_file else 0} {data}"
        return found


def users() -> list[int]:
    return [0, ORDINARY] if os.geteuid() == 0 else [os.geteuid()]


@pytest.fixture(params=users(), ids=lambda uid: "root" if uid == 0 else "ordinary")
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # The directories of pytest are closed to another user.
    top = Path(tempfile.mkdtemp(prefix="liza-box-")).resolve()
    top.chmod(0o755)
    made = Site(top, request.param)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(made.home / ".gitconfig"))
    monkeypatch.setenv("XDG_STATE_HOME", str(made.home / ".state"))
    monkeypatch.setenv("TMUX_TMPDIR", str(made.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.home / ".own"))
    try:
        made.make()
        yield made
    finally:
        shutil.rmtree(top, ignore_errors=True)


DONE, REFUSED = "done", "refused"


class Action(NamedTuple):
    """What a process in the box tries, and what comes of it."""

    name: str
    command: str
    expected: str


ACTIONS = [
    # What is its own.
    Action("write the worktree", "echo x > made && mkdir d && mv made d/ && ln -s d/made link", DONE),
    Action("run a script of the worktree", "printf '#!/bin/sh\n' > run && chmod +x run && ./run", DONE),
    Action("write /tmp", "echo x > /tmp/made && echo y > /var/tmp/made", DONE),
    Action("write /run and /dev/shm, which are its own", "echo x > /run/made && echo x > /dev/shm/made", DONE),
    Action("write its caches", 'echo x > "$CACHE/made"', DONE),
    Action("write the state of its program", 'echo x > "$STATE/made"', DONE),
    Action("write its own .liza", 'echo x > "$REPO/.liza/made"', DONE),
    Action("use devices", "echo x > /dev/null && head -c 1 /dev/urandom > /dev/null && test -e /dev/ptmx", DONE),
    Action("read the checkout", 'test "$(cat "$REPO/README.md")" = one', DONE),
    Action("read its git configuration", 'test "$(git config user.name)" = A', DONE),
    Action("end its own process", "sleep 100 & kill $!", DONE),
    Action("see its own processes only", "test $(ls -d /proc/[0-9]* | wc -l) -lt 20", DONE),
    Action("read the registries of npm", "grep -q registry=https ~/.npmrc", DONE),
    # Files of the person and of Liza.
    Action("write the root", "echo x > /made", REFUSED),
    Action("write /etc", "echo x >> /etc/hosts", REFUSED),
    Action("write /usr", "echo x > /usr/bin/made", REFUSED),
    Action("change a file of the checkout", 'echo x >> "$REPO/README.md"', REFUSED),
    Action("add a file to the checkout", 'echo x > "$REPO/made"', REFUSED),
    Action("delete a file of the checkout", 'rm -f "$REPO/README.md"', REFUSED),
    Action("rename the checkout", 'mv "$REPO" "$REPO-away"', REFUSED),
    Action("change modes in the checkout", 'chmod 777 "$REPO/README.md"', REFUSED),
    Action("change times in the checkout", 'touch -d 2001-01-01 "$REPO/README.md"', REFUSED),
    Action("truncate a file of the checkout", 'truncate -s 0 "$REPO/README.md"', REFUSED),
    Action("link a file of the checkout into the worktree", 'ln "$REPO/README.md" hard', REFUSED),
    Action("write through a link of the worktree", 'ln -s "$REPO/README.md" soft && echo x >> soft', REFUSED),
    Action("add a file to HOME", "echo x > ~/made", REFUSED),
    Action("change the person's shell start", "echo x >> ~/.bashrc", REFUSED),
    Action("change the person's git configuration", "git config --global user.name B", REFUSED),
    Action("read the person's ssh keys", "cat ~/.ssh/secret", REFUSED),
    Action("read the person's gpg keys", "cat ~/.gnupg/secret", REFUSED),
    Action("read the login of a forge", "cat ~/.config/gh/secret", REFUSED),
    Action("read the login of a forge elsewhere", "cat ~/.own/gh/secret", REFUSED),
    Action("read a password of netrc", "grep SECRET ~/.netrc", REFUSED),
    Action("read a token of npm", "grep SECRET ~/.npmrc", REFUSED),
    Action("read the passwords of the system", "grep . /etc/shadow", REFUSED),
    Action("read Liza's state", "cat ~/.state/liza/mark", REFUSED),
    Action("read the person's board", 'grep SECRET "$REPO/.liza/state.yaml"', REFUSED),
    Action("read another slot", 'ls "$SLOTS/s2"', REFUSED),
    Action("write another slot's directories", 'ls "$BOXES/s2"', REFUSED),
    Action("list the slots", 'ls "$SLOTS" | grep -v "^s1$"', REFUSED),
    # The repository.
    Action("write the configuration of the repository", 'echo x >> "$REPO/.git/config"', REFUSED),
    Action("plant a hook", 'echo x > "$REPO/.git/hooks/pre-commit"', REFUSED),
    Action("write a branch of the repository", 'echo x > "$REPO/.git/refs/heads/integration"', REFUSED),
    Action("write an object of the repository", 'echo x > "$REPO/.git/objects/made"', REFUSED),
    Action("write the records of the worktree", 'echo x > "$REPO/.git/worktrees/s1/config.worktree"', REFUSED),
    Action("commit in the checkout", 'git -C "$REPO" commit --allow-empty -m x', REFUSED),
    Action("move a branch from the checkout", 'git -C "$REPO" update-ref refs/heads/integration HEAD~0^{}x', REFUSED),
    Action("push to the repository", 'git push "$REPO" HEAD:refs/heads/integration-2', REFUSED),
    Action("write the .git of the worktree", "echo x > .git", REFUSED),
    Action("delete the .git of the worktree", "rm -f .git", REFUSED),
    Action("replace the .git of the worktree", "mv .git away", REFUSED),
    Action("write beside its directories, which is gone with the box", 'echo x > "$BOXES/s1/dotgit"', DONE),
    Action("replace a directory that the next box mounts", 'mv "$CACHE" "$CACHE-away"', REFUSED),
    # The kernel.
    Action("write a setting of the kernel", "echo x > /proc/sys/kernel/hostname", REFUSED),
    Action("write the core pattern", "echo '|/bin/sh' > /proc/sys/kernel/core_pattern", REFUSED),
    Action("trigger the kernel", "echo h > /proc/sysrq-trigger", REFUSED),
    Action("mount the root writable", "mount -o remount,rw,bind /", REFUSED),
    Action("mount the root writable in a namespace", "unshare -Urm mount -o remount,rw,bind /", REFUSED),
    Action("unmount .git", "umount .git", REFUSED),
    Action("unmount .git in a namespace", "unshare -Urm umount .git", REFUSED),
    Action("mount over HOME", "mount -t tmpfs none ~", REFUSED),
    Action("enter the namespaces of init", "nsenter -t 1 -m -U touch ~/made", REFUSED),
    Action("enter the namespaces of a process outside", "nsenter -t $OUTSIDE -a true", REFUSED),
    Action("make a device", "mknod /tmp/device b 8 0", REFUSED),
    Action("change the root", "chroot / true", REFUSED),
    Action("become another user", "su -s /bin/sh nobody -c true < /dev/null", REFUSED),
    Action("load a module", "insmod /tmp/made", REFUSED),
    Action("set the clock", "date -s 2001-01-01", REFUSED),
    # Processes outside.
    Action("end a process outside", "kill -9 $OUTSIDE", REFUSED),
    Action("see a process outside", "ls /proc/$OUTSIDE", REFUSED),
    Action("write the memory of a process outside", "echo x > /proc/$OUTSIDE/mem", REFUSED),
    Action("trace a process outside", "strace -p $OUTSIDE -o /dev/null", REFUSED),
    # Sockets and pipes.
    Action("use the pipe of the crew", "timeout 2 sh -c 'test -e \"$REPO/.liza/fifo\"'", REFUSED),
    Action("use the socket of the crew", 'connect "$REPO/.liza/run/api.sock"', REFUSED),
    Action("use a socket below /run", "ls /run/user /run/docker.sock /run/dbus", REFUSED),
    Action("use a socket below /tmp", 'connect "$TOP/agent.sock"', REFUSED),
    Action("use the socket of a new server of tmux", "ls ~/tmux-*/*", REFUSED),
    Action("use a socket in HOME", 'connect "$HOME/tmux.sock"', REFUSED),
    # Open, and named in the threat model: with the network, what listens without a path.
    Action("use an abstract socket", 'connect "@$ABSTRACT"', DONE),
    Action("use loopback", 'connect "$PORT"', DONE),
    Action("write a pipe of HOME", "timeout 2 sh -c 'echo x > ~/pipe'", DONE),
    # Its git.
    Action("commit", "git add -A && git commit -q -m work && git commit -q --amend -m better", DONE),
    Action("stash", "echo y > d/made && git stash -q && git stash pop -q", DONE),
    Action(
        "branch, merge and go back",
        "git switch -q -c b && git commit -qam b && git switch -q - && git merge -q b",
        DONE,
    ),
    Action("rebase", "git fetch -q liza && git rebase -q liza/integration", DONE),
    Action("tag and bisect", "git tag t && git bisect start HEAD HEAD~1 && git bisect reset", DONE),
    Action("write a note", "git notes add -m n", DONE),
    Action("configure and clean up", "git config x.y z && git gc -q && git fsck", DONE),
    Action("move a branch of its own copy", "git update-ref refs/heads/integration HEAD", DONE),
]

DRIVER = """
import json, subprocess, sys
results = {}
for name, command in json.load(sys.stdin):
    try:
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=20)
        results[name] = [done.returncode, done.stderr[-300:]]
    except subprocess.TimeoutExpired:
        results[name] = [-1, "no end"]
print(json.dumps(results))
"""
CONNECT = """#!{python}
import socket, sys
name = sys.argv[1]
if name.isdigit():
    socket.create_connection(("127.0.0.1", int(name)), timeout=2)
else:
    there = socket.socket(socket.AF_UNIX)
    there.settimeout(2)
    there.connect(name.replace("@", "\\0", 1) if name.startswith("@") else name)
"""


class Listeners:
    """Sockets of the person: of each kind, with what was told to them."""

    def __init__(self, site: Site) -> None:
        self.reached: list[str] = []
        self.abstract = f"liza-test-{os.getpid()}-{site.uid}"
        self._sockets = [
            self._listen(socket.AF_UNIX, str(site.home / "tmux.sock")),
            self._listen(socket.AF_UNIX, str(site.top / "agent.sock")),
            self._listen(socket.AF_UNIX, f"\0{self.abstract}"),
            self._listen(socket.AF_INET, ("127.0.0.1", 0)),
        ]
        self.port = self._sockets[-1].getsockname()[1]
        for path in (site.home / "tmux.sock", site.top / "agent.sock"):
            os.chown(path, site.uid, site.uid)
            os.utime(path, (OLD, OLD))

    def _listen(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        made = socket.socket(family)
        made.bind(address)
        made.listen()
        threading.Thread(target=self._accept, args=(made, str(address)), daemon=True).start()
        return made

    def _accept(self, made: socket.socket, address: str) -> None:
        with suppress(OSError):
            while True:
                made.accept()[0].close()
                self.reached.append(address)

    def close(self) -> None:
        for made in self._sockets:
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
            made.close()


@pytest.fixture
def listeners(site: Site) -> Iterator[Listeners]:
    made = Listeners(site)
    yield made
    made.close()


def attempt(site: Site, listeners: Listeners, actions: Sequence[Action], outside: int, *, has_network: bool) -> str:
    """Try these from inside; return what came out otherwise than expected."""
    tool = site.paths.box("s1").tmp / "connect"
    tool.write_text(CONNECT.format(python=site.python))
    tool.chmod(0o755)
    done = site.run(
        site.wrap([site.python, "-c", DRIVER], has_network=has_network),
        json.dumps([(action.name, action.command) for action in actions]),
        OUTSIDE=str(outside), TOP=str(site.top), PORT=str(listeners.port), ABSTRACT=listeners.abstract,
        PATH=f"/tmp:{site.environ()['PATH']}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    wrong = [
        f"{action.name}: {results[action.name]}, expected {action.expected}"
        for action in actions
        if (results[action.name][0] == 0) is not (action.expected == DONE)
    ]
    return "\n".join(wrong)


def test_each_action_from_inside_is_done_or_refused_as_expected(site: Site, listeners: Listeners) -> None:
    os.mkfifo(site.home / "pipe")
    os.chown(site.home / "pipe", site.uid, site.uid)
    reader = os.open(site.home / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    outside = subprocess.Popen(["/bin/sleep", "1000"], **site.identity())
    before = site.contents()
    try:
        assert attempt(site, listeners, ACTIONS, outside.pid, has_network=True) == ""
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()
        os.close(reader)
    assert site.contents() == before
    assert not Path("/tmp/made").exists()
    assert sorted(listeners.reached) == sorted([f"\0{listeners.abstract}", "('127.0.0.1', 0)"])


def test_without_network_no_socket_outside_is_reached(site: Site, listeners: Listeners) -> None:
    actions = [
        Action("use an abstract socket", 'connect "@$ABSTRACT"', REFUSED),
        Action("use loopback", 'connect "$PORT"', REFUSED),
        Action("listen on loopback", "\"$PYTHON\" -c 'import socket as s; a = s.create_server((\"127.0.0.1\", 0));"
               " s.create_connection(a.getsockname())'", DONE),
    ]  # fmt: skip
    assert attempt(site, listeners, actions, 1, has_network=False) == ""
    assert listeners.reached == []


HANDLER = """
import pathlib, signal, sys, time
def end(number, frame):
    time.sleep(0.3)
    pathlib.Path("saved").write_text(str(number))
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("site", users()[-1:], indirect=True, ids=["user"])
def test_a_program_in_a_box_ends_by_its_own_handler(site: Site) -> None:
    words = site.wrap([site.python, "-c", HANDLER])
    box = subprocess.Popen(
        words, env=site.environ(), stdout=subprocess.PIPE, start_new_session=True, cwd="/", **site.identity()
    )
    assert box.stdout is not None
    assert box.stdout.readline() == b"ready\n"
    os.killpg(box.pid, signal.SIGTERM)
    assert box.wait(timeout=30) == 3
    assert (site.slot / "saved").read_text() == str(int(signal.SIGTERM))


@pytest.mark.parametrize("site", users()[-1:], indirect=True, ids=["user"])
def test_killing_a_box_ends_everything_in_it(site: Site) -> None:
    words = site.wrap(["sh", "-c", "setsid sleep 1000 & echo ready; sleep 1000"])
    box = subprocess.Popen(
        words, env=site.environ(), stdout=subprocess.PIPE, start_new_session=True, cwd="/", **site.identity()
    )
    assert box.stdout is not None
    assert box.stdout.readline() == b"ready\n"
    box.kill()
    # The pipe is at its end once no process of the box is left.
    assert box.stdout.read() == b""
    assert box.wait(timeout=30) == -signal.SIGKILL


@pytest.mark.parametrize("site", users()[-1:], indirect=True, ids=["user"])
def test_a_new_size_of_the_terminal_reaches_the_program(site: Site) -> None:
    words = site.wrap(["bash", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done"])
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            if site.identity():
                os.setgroups([])
                os.setgid(site.uid)
                os.setuid(site.uid)
            os.execve(words[0], words, site.environ())
        finally:
            os._exit(1)
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        assert b"ready" in screen.readline()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        assert screen.readline().strip() == b"20 60"
    os.waitpid(pid, 0)


@pytest.mark.parametrize("parent", ["/dev/shm", "/run", "/var/tmp"])
def test_a_repository_below_a_replaced_directory_is_shown(parent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.access(parent, os.W_OK):
        pytest.skip(f"{parent} cannot be written")
    top = Path(tempfile.mkdtemp(prefix="liza-box-", dir=parent)).resolve()
    try:
        made = Site(top, os.geteuid())
        monkeypatch.setenv("HOME", str(made.home))
        made.make()
        script = 'echo x > made && git add -A && git commit -q -m x && cat "$REPO/README.md" && ! echo x > "$REPO/made"'
        done = made.run(made.wrap(["sh", "-c", f"{script} && ls ~/.ssh"]))
        assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr
        assert not (made.root / "made").exists()
    finally:
        shutil.rmtree(top)


@pytest.mark.parametrize("site", users()[-1:], indirect=True, ids=["user"])
def test_a_box_in_a_box_works_for_an_ordinary_user(site: Site) -> None:
    program = support.find_program()
    assert program is not None
    inner = Box(str(Path(program).resolve()), (Mount(MountKind.EMPTY, Path("/run")),), site.slot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: site.uid)
        words = inner.wrap(inner.wrap(["sh", "-c", "echo x > /run/x && ! echo x > made"]))
    done = site.run(site.wrap(words))
    assert done.returncode == 0, done.stderr


def test_no_box_follows_links_left_in_its_private_directories(site: Site) -> None:
    own = site.paths.box("s1")
    script = 'ln -s "$HOME" /tmp/link && ln -s / "$CACHE/link" && mkdir -p /tmp/a/b && chmod 0 /tmp/a'
    assert site.run(site.wrap(["sh", "-c", script])).returncode == 0
    slot_directories.prepare_directories(site.paths, "s1", site.home)
    assert list(own.tmp.iterdir()) == []
    assert (site.home / ".bashrc").exists()
    slot_directories.remove_directories(site.paths, "s1")
    assert not own.directory.exists()
    assert (site.home / ".bashrc").exists()


def test_other_files_in_place_of_a_private_directory_are_removed(site: Site) -> None:
    own = site.paths.box("s1")
    shutil.rmtree(own.cache)
    own.cache.symlink_to(site.home)
    shutil.rmtree(own.tmp)
    own.tmp.write_text("a file")
    slot_directories.prepare_directories(site.paths, "s1", site.home)
    assert not own.cache.is_symlink()
    assert own.tmp.is_dir()
    assert (site.home / ".bashrc").exists()


def machine(words: Sequence[str], program: str = "") -> Support:
    """What the probe finds in another process, which starts with these words."""
    code = "import sys; from liza.box.support import probe; found = probe(sys.argv[1]); "
    code += "print(found.cause, found.remedy, sep='\\n')"
    program = program or str(Path(support.find_program() or "").resolve())
    done = subprocess.run([*words, sys.executable, "-c", code, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    cause, remedy, *_ = done.stdout.split("\n")
    return Support(program, cause, remedy)


NO_NAMESPACES = """
import ctypes, os, struct, sys
# A filter of seccomp as that of docker: clone and unshare with CLONE_NEWUSER are answered with EPERM.
CLONE, UNSHARE, CLONE3 = {"x86_64": (56, 272, 435), "aarch64": (220, 97, 435)}[os.uname().machine]
def statement(code, k, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, k)
rows = [
    statement(0x20, 0),                  # load the number of the call
    statement(0x15, CLONE3, 6, 0),       # clone3: ENOSYS, so that clone is called
    statement(0x15, CLONE, 1, 0),
    statement(0x15, UNSHARE, 0, 2),      # any other call: allow
    statement(0x20, 16),                 # load its first argument
    statement(0x45, 0x10000000, 1, 0),   # CLONE_NEWUSER: EPERM
    statement(0x06, 0x7FFF0000),         # allow
    statement(0x06, 0x00050001),         # EPERM
    statement(0x06, 0x00050026),         # ENOSYS
]
program = ctypes.create_string_buffer(b"".join(rows))
fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(program)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, fprog, 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
"""


DOCKER_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip


def outer(*words: str) -> list[str]:
    """A container around the probe: bubblewrap, with the options of this machine that is missing something."""
    program = str(Path(support.find_program() or "").resolve())
    return [program, "--unshare-user", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", *words, "--"]


@pytest.mark.parametrize(
    ("words", "cause", "remedy"),
    [
        (("--tmpfs", "/proc"), "/proc is not mounted", "mount -t proc proc /proc"),
        (("--unshare-pid", "--proc", "/proc", "--tmpfs", "/proc/fs"), "masks parts of /proc", "systempaths=unconfined"),
        (("--unshare-pid", "--proc", "/proc", "--disable-userns"), "limit of user namespaces", "max_user_namespaces"),
    ],
    ids=["no /proc", "masked /proc", "limit"],
)
def test_a_machine_without_boxes_gives_the_reason(words: tuple[str, ...], cause: str, remedy: str) -> None:
    trial = subprocess.run([*outer(*words), "true"], capture_output=True, text=True)
    if trial.returncode != 0:
        pytest.skip(f"this machine cannot be simulated here: {trial.stderr.strip()}")
    found = machine(outer(*words))
    assert cause in found.cause, found
    assert remedy in found.remedy


def test_a_filter_of_docker_is_named() -> None:
    found = machine([sys.executable, "-c", NO_NAMESPACES])
    assert "docker's seccomp" in found.cause, found
    assert "seccomp=unconfined" in found.remedy


def test_root_needs_capabilities_for_a_box_and_learns_which() -> None:
    given = [word for name in DOCKER_CAPABILITIES for word in ("--cap-add", f"CAP_{name}")]
    assert machine(outer("--cap-drop", "ALL", *given)).works
    if os.geteuid() == 0:
        assert "SETFCAP" in machine(outer("--proc", "/proc", "--cap-drop", "ALL")).cause
