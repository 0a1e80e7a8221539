"""What may stand where the board and its neighbours must: too much, too deep, no text, no file at all. Each ends in a
refusal by name, in bounded memory and time, with nothing written over it, and the hint leads out of it."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import pytest

from liza.board import revisions
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.system import files
from tests.campaign.small_board import FIRST, messages, opened, repository, say

MEMORY = 2 << 30
SECONDS = 60
Bomb = Callable[[Path], object]


def text(more: str) -> Bomb:
    return lambda place: place.write_text(FIRST + more)


def data(more: bytes) -> Bomb:
    return lambda place: place.write_bytes(FIRST.encode() + more)


def entry(details: str) -> str:
    """An anomaly, below which anything may stand."""
    return f"anomalies:\n  - timestamp: 2026-01-01T12:00:00Z\n    type: trade_off\n    details:\n{details}\n"


def laughs(kind: str) -> str:
    """Twenty lines that stand for 10**20 values."""
    lines = ["      a0: &a0 {x: 1, y: 2}"]
    for number in range(1, 20):
        before = ", ".join([f"*a{number - 1}"] * 10)
        value = f"[{before}]" if kind == "list" else "{" + f"<<: [{before}], k{number}: [{before}]" + "}"
        lines.append(f"      a{number}: &a{number} {value}")
    return entry("\n".join(lines))


def deep(depth: int) -> str:
    return "".join(f"{' ' * number}k:\n" for number in range(depth)) + " " * depth + "k: 1\n"


def sparse(size: int) -> Bomb:
    def lay(place: Path) -> None:
        with place.open("ab") as file:
            file.truncate(size)

    return lay


def replaced(lay: Bomb) -> Bomb:
    def instead(place: Path) -> None:
        place.unlink(missing_ok=True)
        lay(place)

    return instead


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # The name may be too long for a socket, and a path from here is not.
        here = Path.cwd()
        os.chdir(place.parent)
        made.bind(place.name)
        os.chdir(here)


NO_FILES: dict[str, Bomb] = {
    "a directory": replaced(lambda place: place.mkdir()),
    "a directory with something in it": replaced(lambda place: (place / "x").mkdir(parents=True)),
    "a pipe": replaced(lambda place: os.mkfifo(place)),
    "a socket": replaced(a_socket),
    "a link to nowhere": replaced(lambda place: place.symlink_to("nowhere")),
    "a link to itself": replaced(lambda place: place.symlink_to(place.name)),
    "a link to an endless device": replaced(lambda place: place.symlink_to("/dev/zero")),
}
BOARDS: dict[str, Bomb] = {
    "50 MB": text("# and so on and so on and so on and so on and so on\n" * 1_000_000),
    "a hole of a terabyte": sparse(1 << 40),
    "aliases of aliases": text(laughs("list")),
    "merges of merges": text(laughs("map")),
    "an alias of itself": text(entry("      a: &a [*a]")),
    "NUL bytes": data(b"x: a\0b\n"),
    "nothing but NUL bytes": lambda place: place.write_bytes(b"\0" * 4096),
    "UTF-16": lambda place: place.write_bytes(FIRST.encode("utf-16")),
    "no UTF-8": data(b"x: \xff\xfe\n"),
    "half of a letter": data(b"x: \xed\xa0\x80\n"),
    "half of a letter, spelled out": text(
        'human_notes:\n  - timestamp: 2026-01-01T12:00:00Z\n    message: "\\ud800"\n'
    ),
    "a letter beyond all": text('x: "\\UFFFFFFFF"\n'),
    "10,000 brackets": text("x: " + "[" * 10_000 + "]" * 10_000 + "\n"),
    "10,000 brackets that stay open": text("x: " + "[" * 10_000 + "\n"),
    "10,000 braces": text("x: " + "{a: " * 10_000 + "1" + "}" * 10_000 + "\n"),
    "10,000 dashes": text("x:\n" + "- " * 10_000 + "1\n"),
    "2,000 levels": text(deep(2_000)),
    "a tag for an object": lambda place: place.write_text(
        FIRST.replace("description: The first", 'description: !!python/object/apply:os.system ["touch pwned"]')
    ),
    "keys twice": text("tasks: []\n"),
    "keys twice in an entry": lambda place: place.write_text(
        FIRST.replace("    scope: all\n", "    scope: all\n    scope: none\n")
    ),
    "tabs": lambda place: place.write_text(FIRST.replace("    scope", "\tscope")),
    "3 MB that no parser takes": text(
        "x: [a, b]\n# y\n".replace("x", "y") + "z: {a: b}\n" + ("- }{" + "x" * 100 + "\n") * 30_000
    ),
    "a revision beyond all": lambda place: place.write_text(FIRST.replace("revision: 1", f"revision: {10**30}")),
    "the last revision": lambda place: place.write_text(FIRST.replace("revision: 1", f"revision: {(1 << 63) - 1}")),
    "a revision of 5,000 digits": lambda place: place.write_text(
        FIRST.replace("revision: 1", f"revision: {'9' * 5000}")
    ),
    "another document": text("---\nversion: 1\n"),
    **NO_FILES,
}


def crew(root: Path) -> Paths:
    """A crew with a change worth keeping."""
    repository(root)
    opened(root).create(FIRST)
    say(opened(root), "worth keeping")
    return Paths(root)


def bounded(work: Callable[[], object]) -> int:
    """Does the work in a child with little memory and time; its exit code: 0, that of a LizaError, or 99."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.alarm(SECONDS)
            work()
            code = 0
        except LizaError as error:
            code = error.exit_code if error.hint and error.message else 98
            os.write(2, f"{error.code}: {error.message[:300]} -> {error.hint}\n".encode())
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def liza(root: Path, *words: str) -> int:
    """``liza`` with these words, in a child."""
    from liza.cli.app import run_liza
    from liza.cli.entry_points import run_reporting_errors

    def typed() -> None:
        os.chdir(root)
        os._exit(run_reporting_errors(run_liza, words, "liza"))

    return bounded(typed)


def aged(place: Path) -> None:
    """Nobody is at it any more: no need to wait for the rest of it."""
    if place.is_file() and not place.is_symlink():
        os.utime(place, (1, 1))


def seen(place: Path) -> object:
    """What stands there, without reading endlessly."""
    found = place.lstat()
    inside = revisions.sha(place.read_bytes()) if place.is_file() and found.st_size < 100 << 20 else None
    return found.st_mode, found.st_ino, found.st_size, inside


QUICK = {"a hole of a terabyte", "aliases of aliases", "NUL bytes", "a pipe"}
"""What is tried each time; the rest in campaigns."""
QUICK_KINDS = {"a link to a file of somebody"}


def each(names: Iterable[str], quick: Collection[str]) -> list[object]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.campaign) for name in names]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", each(BOARDS, QUICK))
def test_anything_in_place_of_board_is_refused_and_restore_works(tmp_path: Path, name: str) -> None:
    root = tmp_path / "crew"
    paths = crew(root)
    BOARDS[name](paths.state)
    aged(paths.state)
    before = seen(paths.state)
    assert bounded(lambda: opened(root).read()) == 4
    assert bounded(lambda: say(opened(root), "never")) == 4
    assert liza(root, "status") == 4
    assert liza(root, "validate", str(paths.state)) in (0, 1, 2, 4, 5)
    assert seen(paths.state) == before
    assert not (root / "pwned").exists()
    assert liza(root, "restore", "--last-good") == 0
    assert messages(opened(root).read()) == ["worth keeping"]
    say(opened(root), "and on")
    assert messages(opened(root).read()) == ["worth keeping", "and on"]
    assert opened(root).read().revision < 1000


LARGE: dict[str, str] = {
    "100,000 lines of one text": "notes: |\n" + "  a line of it\n" * 100_000,
    "10 MB in one line": "notes: " + "x" * (10 << 20) + "\n",
    "10 MB in one quoted line": 'notes: "' + "x y " * (5 << 19) + '"\n',
    "a tag for an object in a section of somebody else": 'notes: !!python/object/apply:os.system ["touch pwned"]\n',
}


@pytest.mark.parametrize("name", each(LARGE, {"a tag for an object in a section of somebody else"}))
def test_large_or_odd_boards_use_bounded_memory_and_time(tmp_path: Path, name: str) -> None:
    paths = crew(tmp_path / "crew")
    root = paths.root
    paths.state.write_text(paths.state.read_text() + LARGE[name])
    aged(paths.state)
    assert bounded(lambda: opened(root).read()) == 0
    assert bounded(lambda: say(opened(root), "and on")) == 0
    assert LARGE[name] in paths.state.read_text()
    assert messages(opened(root).read()) == ["worth keeping", "and on"]
    assert not (root / "pwned").exists()


def test_a_byte_order_mark_is_no_obstacle_and_stays(tmp_path: Path) -> None:
    paths = crew(tmp_path / "crew")
    paths.state.write_bytes(b"\xef\xbb\xbf" + paths.state.read_bytes())
    aged(paths.state)
    assert bounded(lambda: say(opened(paths.root), "and on")) == 0
    assert paths.state.read_bytes().startswith(b"\xef\xbb\xbfversion")
    assert messages(opened(paths.root).read()) == ["worth keeping", "and on"]


def test_changes_that_make_a_board_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BOARD_SIZE", 1 << 20)
    paths = crew(tmp_path / "crew")
    before = paths.state.read_bytes()
    with pytest.raises(LizaError, match="MB") as caught:
        say(opened(paths.root), "x" * files.MAX_BOARD_SIZE)
    assert (caught.value.exit_code, caught.value.hint) == (4, "liza edit")
    assert paths.state.read_bytes() == before
    say(opened(paths.root), "a shorter one")


# ── beside the board ─────────────────────────────────────────────────────────────────────────────────────────────────

ALL_KINDS = {*NO_FILES, "a link to a file of somebody"}
NEIGHBOURS: dict[str, Callable[[Paths], Path]] = {
    "seal": lambda paths: paths.write_intent,
    "seal to come": lambda paths: paths.tx / "seal.new",
    "journal": lambda paths: paths.journal,
    "mark": lambda paths: paths.recorded_mark,
    "board to come": lambda paths: paths.tx / "next",
    "lock": lambda paths: paths.state_lock,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "kinds", [QUICK_KINDS, pytest.param(ALL_KINDS, marks=pytest.mark.campaign)], ids=["few", "all"]
)
@pytest.mark.parametrize("which", NEIGHBOURS)
def test_irregular_files_beside_the_board_are_overcome_or_refused(
    tmp_path: Path, which: str, kinds: Collection[str]
) -> None:
    outside = tmp_path / "theirs"
    every = {**NO_FILES, "a link to a file of somebody": replaced(lambda place: place.symlink_to(outside))}
    for number, (name, lay) in enumerate((name, lay) for name, lay in every.items() if name in kinds):
        paths = crew(tmp_path / f"crew-{number}")
        outside.write_text("theirs\n")
        place = NEIGHBOURS[which](paths)
        lay(place)
        assert bounded(lambda root=paths.root: opened(root).read()) in (0, 4, 5), name
        assert led_out(paths) == 0, name
        assert bounded(lambda root=paths.root: say(opened(root), "last")) == 0, name
        assert messages(opened(paths.root).read())[-2:] == ["and on", "last"], name
        assert "worth keeping" in messages(opened(paths.root).read()), name
        assert outside.read_text() == "theirs\n", name
        assert not (place.parent / "nowhere").exists(), name


def led_out(paths: Paths) -> int:
    """A change, after what each refusal said is to be done."""
    for _ in range(4):
        code = bounded(lambda: say(opened(paths.root), "and on"))
        if code == 0:
            return 0
        assert code in (4, 5)
        try:
            with opened(paths.root).transaction("human", "note") as tx:
                tx.state = tx.state.with_agent("coder-2", tx.state.agents["coder-1"])
        except LizaError as error:
            words = shlex.split(error.hint)
            if words[0] != "mv":
                raise
            subprocess.run(words, check=True)
    return code
