"""The faults: one small function each. Each does its harm at once, and what lasts is ended later by itself.

A fault that makes no sense at the moment raises Passed, and another is drawn.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from liza.board import revisions
from liza.board.file_store import write_intent
from tests.campaign.crew_run import SIZE, World
from tests.journeys.crews import BIN, processes_of


class Passed(Exception):
    """Not now, and why."""


Fault = Callable[[World], str]


@dataclass
class Tally:
    """What was done: number and seconds by kind."""

    number: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)

    def count(self, kind: str, seconds: float) -> None:
        """One more of ``kind``."""
        self.number[kind] = self.number.get(kind, 0) + 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds


def rampage(world: World, number: int, tally: Tally, pause: float) -> None:
    """``number`` faults, every kind as often as it can be, with a pause of at most ``pause`` seconds between two."""
    deck: list[str] = []
    for _ in range(number):
        _await_life(world)
        _keep_a_copy(world)
        began = time.monotonic()
        kind, what = _one(world, deck, tally)
        world.tell(f"{kind}: {what}")
        world.pass_by(world.chance.uniform(0.0, pause))
        tally.count(kind, time.monotonic() - began)


def _one(world: World, deck: list[str], tally: Tally) -> tuple[str, str]:
    """The first fault of the deck that makes sense now, done."""
    while True:
        if len(deck) < len(KINDS):
            deck += world.chance.sample(KINDS, len(KINDS))
        for kind in list(deck):
            try:
                what = FAULTS[kind](world)
            except (Passed, OSError) as why:
                tally.passed[kind] = str(why)
                continue
            deck.remove(kind)
            return kind, what
        world.pass_by(0.05)


def _await_life(world: World) -> None:
    """Until the crew is at work again, for a while: who is down already cannot be harmed much."""
    for _ in range(30):
        with suppress(Passed, OSError):
            _session(world)
            return
        world.pass_by(0.1)


def _keep_a_copy(world: World) -> None:
    if not _is_usable(world):
        return
    with suppress(OSError):
        data = world.crew.paths.state.read_bytes()
        intent = write_intent.read_intent(world.crew.paths.write_intent)
        if intent is not None and intent.after == revisions.sha(data):
            world.copies.append(data)


def _is_usable(world: World) -> bool:
    return not world.lasting() & {"disk full", "read-only", "lock held"}


def _usable(world: World) -> None:
    if not _is_usable(world):
        raise Passed("the disk is full or read-only, or the lock is held")


def _seen(world: World) -> None:
    """Until the crew has seen what was edited last: what nobody has read may be lost, and it would prove nothing."""
    _usable(world)
    if world.state() is None:
        raise Passed("the board cannot be read as it is")


# ── killing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def kill_supervisor(world: World) -> str:
    keeper = world.chance.choice(list(world.keepers.values()))
    keeper.delay = world.chance.choice((0.05, 0.05, 0.2, 1.0, world.lease + 1.5))
    keeper.process.kill()
    return f"{keeper.agent}, again after {keeper.delay} s"


def kill_all(world: World) -> str:
    """As a machine that loses its power, but for the disk."""
    for keeper in world.keepers.values():
        keeper.process.kill()
    found = processes_of(world.root)
    for pid, _ in found:
        _signal(pid, signal.SIGKILL)
    return f"{len(world.keepers)} supervisors and {len(found)} processes"


def kill_shim(world: World) -> str:
    run, found = _session(world)
    _signal(found["shim"]["pid"], signal.SIGKILL)
    return run


def kill_program(world: World) -> str:
    run, found = _session(world)
    _signal(found["child"]["pid"], signal.SIGKILL)
    return run


def kill_verb(world: World) -> str:
    """A command of an agent's, or a merger, wherever it is."""
    found = [(pid, words) for pid, words in processes_of(world.root) if "bin/liza " in words]
    if not found:
        raise Passed("no command is under way")
    pid, words = world.chance.choice(found)
    _signal(pid, signal.SIGKILL)
    return words.partition("bin/liza ")[2][:60]


def kill_own_verb(world: World) -> str:
    """A person's command, at a random moment; one that was done first is acknowledged."""
    _usable(world)
    text = f"by hand {len(world.noted)}-{world.chance.random()}"
    child = subprocess.Popen(
        [BIN / "liza", "note", text], cwd=world.root, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        code = child.wait(world.chance.uniform(0.05, 0.6))
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    if code == 0:
        world.noted.append(text)
    return f"note, exit {code}"


def kill_group(world: World) -> str:
    found = {os.getpgid(pid) for pid, _ in _existing(world)} - {os.getpgid(0)}
    if not found:
        raise Passed("no process of the crew is there")
    group = world.chance.choice(sorted(found))
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return str(group)


# ── halting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def freeze_supervisor(world: World) -> str:
    keeper = world.chance.choice(list(world.keepers.values()))
    return _freeze(world, keeper.process.pid, keeper.agent)


def freeze_program(world: World) -> str:
    run, found = _session(world)
    return _freeze(world, found["child"]["pid"], run)


def freeze_shim(world: World) -> str:
    run, found = _session(world)
    return _freeze(world, found["shim"]["pid"], run)


def freeze_verb(world: World) -> str:
    """Possibly with the lock of the board in its hand."""
    found = [pid for pid, words in processes_of(world.root) if "bin/liza " in words]
    if not found:
        raise Passed("no command is under way")
    return _freeze(world, world.chance.choice(found), "a command")


def _freeze(world: World, pid: int, what: str) -> str:
    seconds = world.lease + world.chance.uniform(0.5, 1.5)
    _signal(pid, signal.SIGSTOP)
    world.later(seconds, "frozen", lambda: _signal(pid, signal.SIGCONT))
    return f"{what} for {seconds:.1f} s"


# ── the disk, the clock and the lock ─────────────────────────────────────────────────────────────────────────────────


def fill_disk(world: World) -> str:
    _own_disk(world)
    _usable(world)
    left = world.chance.choice((0, 4096, 16384, 65536))
    for _ in range(5):
        at = os.statvfs(world.disk)
        # Somebody may have written more meanwhile: then there is less room than is used, and it is refused.
        with suppress(subprocess.CalledProcessError):
            _remount(world, f"remount,size={(at.f_blocks - at.f_bfree) * at.f_frsize + left}")
            break
    else:
        raise Passed("too much is written at this moment")
    world.later(world.chance.uniform(0.5, 2.0), "disk full", lambda: _remount(world, f"remount,size={SIZE}"))
    return f"{left} bytes left"


def read_only(world: World) -> str:
    """A second mount above the first: what is open for writing would keep the first one from being made read-only."""
    _own_disk(world)
    _usable(world)
    aside = world.notes.parent / "read-only"
    aside.mkdir(exist_ok=True)
    for words in (
        ["mount", "--bind", world.disk, aside],
        ["mount", "-o", "remount,bind,ro", aside],
        ["mount", "--bind", aside, world.disk],
        ["umount", aside],
    ):
        subprocess.run(words, check=True, capture_output=True)
    world.later(
        world.chance.uniform(0.5, 2.0), "read-only", lambda: subprocess.run(["umount", "-l", world.disk], check=True)
    )
    return "for a while"


def step_clock(world: World) -> str:
    place = world.notes / "clock" / "offset"
    before = int(place.read_text())
    step = world.chance.choice((-86400, -3600, -60, -world.lease, world.lease, 60, 3600, 86400))
    aside = place.with_name("offset.new")
    aside.write_text(f"{before + step}\n")
    aside.replace(place)
    return f"by {step} s to {before + step} s"


def hold_lock(world: World) -> str:
    _usable(world)
    seconds = world.chance.uniform(0.5, world.lease + 1)
    words = ["flock", world.crew.paths.state_lock, "sleep", f"{seconds:.2f}"]
    held = subprocess.Popen(words, start_new_session=True)

    def let_go() -> None:
        # It may still wait for the lock, of somebody whom another fault has frozen.
        with suppress(ProcessLookupError):
            os.killpg(held.pid, signal.SIGKILL)
        held.wait()

    world.later(seconds, "lock held", let_go)
    return f"for {seconds:.1f} s"


def _own_disk(world: World) -> None:
    if not world.mounted:
        raise Passed("mounting is not permitted here")


def _remount(world: World, options: str) -> None:
    subprocess.run(["mount", "-o", options, world.disk], check=True, capture_output=True)


# ── editing the board ────────────────────────────────────────────────────────────────────────────────────────────────


def edit_with_yq(world: World) -> str:
    """A note, with yq, under the lock; yq writes the whole file anew in its own way."""
    _seen(world)
    text = f"with yq {world.chance.random()}"
    note = json.dumps({"timestamp": "2026-01-01T00:00:00Z", "message": text})
    paths = world.crew.paths
    words = ["flock", "-w", "2", paths.state_lock, "yq", "-y", "-i", f".human_notes += [{note}]", paths.state]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Passed(done.stderr.strip())
    world.noted.append(text)
    return text


REWRITE = """\
import pathlib, sys
place, old, new = sys.argv[1:]
text = open(place, encoding="utf-8").read()
if old not in text:
    sys.exit(9)
with open(place, "r+", encoding="utf-8") as file:
    file.truncate(0)
    file.write(text.replace(old, new))
"""


def edit_under_lock(world: World) -> str:
    """The description of a task, in place, under the lock."""
    _seen(world)
    task, old, new = _other_words(world)
    words = ["flock", "-w", "2", str(world.crew.paths.state_lock), sys.executable, "-I", "-S", "-c", REWRITE]
    if subprocess.run([*words, world.crew.paths.state, old, new], check=False).returncode:
        raise Passed(f"{old} is not on the board")
    world.described[task] = new
    return new


def edit_without_lock(world: World) -> str:
    """What an editor does: the file is read, and written in place after a while. Its own edit may be lost."""
    _seen(world)
    state = world.crew.paths.state
    text = state.read_text()
    world.pass_by(world.chance.uniform(0.0, 0.1))
    world.described.clear()
    number = world.chance.randrange(10**6)
    state.write_text(text.replace("is there", f"is there {number}", 1) if "is there" in text else text + "\n")
    return f"is there {number}"


def put_old_copy_back(world: World) -> str:
    _seen(world)
    if len(world.copies) < 3:
        raise Passed("there is no old copy yet")
    world.described.clear()
    copy = world.chance.choice(list(world.copies)[:-1])
    world.crew.paths.state.write_bytes(copy)
    return next(line for line in copy.decode().splitlines() if line.startswith("revision:"))


@contextmanager
def _lock(world: World) -> Iterator[None]:
    """The lock of the board, as flock(1) takes it; what holds it may be frozen, so it is asked for again and again."""
    with world.crew.paths.state_lock.open("r+") as file:
        for _ in range(40):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                world.pass_by(0.05)
            else:
                break
        else:
            raise Passed("the lock is held")
        yield


def _other_words(world: World) -> tuple[str, str, str]:
    state = world.state()
    found = [task for task in state.tasks if task.description.startswith("Write ")] if state else []
    if not found:
        raise Passed("no task is on the board")
    task = world.chance.choice(found)
    return task.id, task.description, f"Write {task.id} (v{world.chance.randrange(10**6)})"


# ── destroying ───────────────────────────────────────────────────────────────────────────────────────────────────────


def truncate_board(world: World) -> str:
    _seen(world)
    state = world.crew.paths.state
    size = world.chance.randrange(state.stat().st_size)
    os.truncate(state, size)
    return f"to {size} bytes"


def remove_board(world: World) -> str:
    _seen(world)
    world.crew.paths.state.unlink()
    return "state.yaml"


def remove_worktree(world: World) -> str:
    slot = _slot(world)
    # At once, as far as git is concerned: an agent at work would commit that half of the files is gone.
    with suppress(OSError):
        (slot / ".git").write_text("gitdir: /nowhere\n")
    shutil.rmtree(slot, ignore_errors=True)
    return slot.name


def remove_records(world: World) -> str:
    """git's own records of a worktree."""
    place = _admin(world)
    shutil.rmtree(place, ignore_errors=True)
    return place.name


def spoil_git_file(world: World) -> str:
    slot = _slot(world)
    (slot / ".git").write_text(world.chance.choice(("", "garbage\n", "gitdir: /nowhere\n")))
    return slot.name


def spoil_owner(world: World) -> str:
    place = _admin(world)
    (place / "liza").write_text(world.chance.choice(("", "garbage", "{}", '{"task": 7}', "\0" * 40)))
    return place.name


def cut_journal(world: World) -> str:
    """The last lines of the journal, under the lock: so it is known which they are."""
    _seen(world)
    number = world.chance.randint(1, 3)
    with _lock(world):
        kept = world.crew.paths.journal.read_text().splitlines(keepends=True)
        gone = kept[-number:]
        world.crew.paths.journal.write_text("".join(kept[:-number]))
    # A line without an end is one whose writer was killed or found the disk full: no revision came of it.
    said = [json.loads(line[2:]) for line in gone if line.startswith("- ") and line.endswith("\n")]
    # Without the line that voids a revision, the line that announced it stands as if it had come to be.
    numbers = {one.get("revision") or one["void"] for one in said}
    world.unsaid |= numbers
    return f"{sorted(numbers)}"


def remove_seal(world: World) -> str:
    _seen(world)
    place = world.crew.paths.write_intent
    if world.chance.random() < 0.5:
        place.unlink(missing_ok=True)
        return "removed"
    place.write_text(world.chance.choice(("", "garbage", "{}")))
    return "spoiled"


def leave_index_lock(world: World) -> str:
    place = world.chance.choice([world.root / ".git", _admin(world)]) / "index.lock"
    place.touch()
    if place.parent.name == ".git":
        world.later(2.0, "index.lock", lambda: place.unlink(missing_ok=True))
    return str(place.relative_to(world.root))


# ── what is there ────────────────────────────────────────────────────────────────────────────────────────────────────


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _session(world: World) -> tuple[str, dict[str, dict[str, int]]]:
    """A living session, as its shim wrote it down."""
    found = []
    for place in world.crew.paths.runs.glob("*/*/session.json"):
        if not (place.parent / "exit.json").exists():
            words = json.loads(place.read_text())
            if Path(f"/proc/{words['shim']['pid']}").exists():
                found.append((place.parent.name, words))
    if not found:
        raise Passed("no session lives")
    return world.chance.choice(sorted(found, key=lambda one: one[0]))


def _existing(world: World) -> list[tuple[int, str]]:
    return [one for one in processes_of(world.root) if Path(f"/proc/{one[0]}").exists()]


def _slot(world: World) -> Path:
    found = sorted(path for path in world.crew.paths.slots.glob("*") if path.is_dir())
    if not found:
        raise Passed("no worktree is there")
    return world.chance.choice(found)


def _admin(world: World) -> Path:
    found = sorted((world.root / ".git" / "worktrees").glob("*"))
    if not found:
        raise Passed("no worktree is there")
    return world.chance.choice(found)


FAULTS: dict[str, Fault] = {
    "kill a supervisor": kill_supervisor,
    "kill everything": kill_all,
    "kill a shim": kill_shim,
    "kill a program": kill_program,
    "kill a command": kill_verb,
    "kill a person's command": kill_own_verb,
    "kill a process group": kill_group,
    "freeze a supervisor": freeze_supervisor,
    "freeze a program": freeze_program,
    "freeze a shim": freeze_shim,
    "freeze a command": freeze_verb,
    "fill the disk": fill_disk,
    "disk read-only": read_only,
    "step the clock": step_clock,
    "hold the lock": hold_lock,
    "flock yq": edit_with_yq,
    "flock editor": edit_under_lock,
    "editor without lock": edit_without_lock,
    "old copy": put_old_copy_back,
    "truncate the board": truncate_board,
    "remove the board": remove_board,
    "remove a worktree": remove_worktree,
    "remove git's records": remove_records,
    "spoil .git of a slot": spoil_git_file,
    "spoil the owner file": spoil_owner,
    "cut the journal": cut_journal,
    "remove the seal": remove_seal,
    "leave an index.lock": leave_index_lock,
}
KINDS = sorted(FAULTS)
