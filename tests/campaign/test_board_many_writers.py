"""Many writers of one board at once, editors beside them under ``flock`` and one without: nothing is lost, nothing is
doubled, and who reads without the lock never sees a board that never was."""

from __future__ import annotations

import fcntl
import os
import queue
import random
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from liza.board import revisions
from liza.board.file_store import revision_journal, write_intent
from liza.model.errors import LizaError
from liza.model.paths import Paths
from tests.campaign.small_board import (
    FIRST,
    check,
    journal_of,
    messages,
    opened,
    recorded,
    repository,
    say,
)

SEED = int(os.environ.get("LIZA_SEED", "20260101"))


def started(work: Callable[[], object]) -> int:
    """A child that does the work; it ends with 0 where nothing was raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_settled(paths: Paths) -> bool:
    """Whether nothing that was done outside waits to be taken up."""
    sealed = write_intent.read_intent(paths.write_intent)
    return sealed is not None and sealed.after == revisions.sha(paths.state.read_bytes())


# ── all of them under the lock ───────────────────────────────────────────────────────────────────────────────────────


def writing(root: Path, name: str, count: int) -> None:
    """A note and a step of the priority a transaction, each said to be done only when it is."""
    board = opened(root)
    for number in range(count):
        say(board, f"{name} {number}")


def editing_by_hand(paths: Paths, count: int) -> None:
    """What ``yq -i`` under ``flock`` does: read, truncate, write in place. Each edit counts one further."""
    for _ in range(count):
        waited_for(lambda: is_settled(paths))
        with open(paths.state_lock, "a") as lock:  # noqa: PTH123 - the descriptor is what is locked
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = paths.state.read_text()
            found = re.search(r"scope: edit (\d+)", text)
            assert found
            text = text.replace(found[0], f"scope: edit {int(found[1]) + 1}")
            with paths.state.open("w") as file:
                file.write(text)


def editing_with_programs(paths: Paths, count: int, yq: bool) -> None:
    """The same by the programs that people have; the last edit is made by yq, which writes the whole file anew."""
    script = 'sed "s/grace: $1\\$/grace: $2/" "$0" > "$0.copy" && cat "$0.copy" > "$0"'
    words = ["sh", "-c", script, str(paths.state)]
    for number in range(count):
        waited_for(lambda: is_settled(paths))
        if yq and number == count - 1:
            told = subprocess.run(["yq", "--help"], capture_output=True, text=True).stdout
            own = ["-y"] if "jq wrapper" in told else []
            command = ["yq", "-i", *own, f".config.grace = {101 + number}", str(paths.state)]
        else:
            command = [*words, str(100 + number), str(101 + number)]
        subprocess.run(["flock", str(paths.state_lock), *command], check=True)


def settling_edits(root: Path) -> None:
    """Take up what editors do after the last writer, until this process is killed."""
    while True:
        opened(root).read()
        select.select([], [], [], 0.01)


def waited_for(condition: Callable[[], bool]) -> None:
    """Asks again until it holds; whoever waits here is a neighbour, and the crew is what is tested."""
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit, "it never came to be"
        select.select([], [], [], 0.002)


@pytest.mark.parametrize(
    ("writers", "count", "edits", "yq"),
    [
        (3, 15, 1, False),
        pytest.param(2, 5, 1, True, marks=pytest.mark.needs("yq")),
        pytest.param(8, 200, 12, True, marks=[pytest.mark.needs("yq"), pytest.mark.campaign]),
    ],
)
def test_many_writers_beside_flock_editors_lose_no_update(
    tmp_path: Path, writers: int, count: int, edits: int, yq: bool
) -> None:
    root = tmp_path / "crew"
    repository(root)
    first = FIRST.replace("scope: all", "scope: edit 0", 1) + "config:\n  grace: 100\n"
    opened(root).create(first)
    paths = Paths(root)
    begun = time.monotonic()
    children = [started(lambda name=f"w{number}": writing(root, name, count)) for number in range(writers)]
    editors = [
        started(lambda: editing_by_hand(paths, edits)),
        started(lambda: editing_with_programs(paths, edits, yq)),
    ]
    assert [ended(pid) for pid in children] == [0] * writers
    seconds = time.monotonic() - begun
    settling = started(lambda: settling_edits(root))
    assert [ended(pid) for pid in editors] == [0, 0]
    os.kill(settling, signal.SIGKILL)
    ended(settling)
    state = opened(root).read()
    said = messages(state)
    assert len(said) == len(set(said)) == writers * count
    for number in range(writers):
        own = [text for text in said if text.startswith(f"w{number} ")]
        assert own == [f"w{number} {step}" for step in range(count)]
    assert (state.tasks[0].scope, state.config.grace) == (f"edit {edits}", 100 + edits)
    outside = [one for one in revision_journal.iter_newest_first(paths.journal) if one.event == "external_edit"]
    assert 1 <= len(outside) <= 2 * edits
    assert state.revision == 1 + writers * count + len(outside)
    assert all(not one.alerts and not one.overwrote for one in outside)
    assert len(check(root).tasks) == 2
    shas = journal_of(paths)
    assert sorted(shas) == list(range(1, state.revision + 1))
    assert recorded(root) == shas
    print(
        f"{writers} writers, {writers * count} transactions in {seconds:.1f} s ({writers * count / seconds:.0f}/s), "
        f"{2 * edits} edits under flock in {len(outside)} revisions, 0 lost, {len(shas)} revisions in history"
    )


# ── one who knows nothing of a lock ──────────────────────────────────────────────────────────────────────────────────


def is_whole(text: str) -> bool:
    return re.fullmatch(r"edit (\d+) of all, and again edit \1", text) is not None


def editing_in_place(paths: Paths, edits: int) -> None:
    """Truncates and writes a fresh copy in pieces, each after a pause, as a slow editor does."""
    chance = random.Random(SEED)
    for number in range(1, edits + 1):
        waited_for(lambda: is_settled(paths))
        text = paths.state.read_text()
        text = re.sub(r"edit \d+ of all, and again edit \d+", f"edit {number} of all, and again edit {number}", text)
        more = (
            f'  - id: "e{number}"\n    status: DRAFT\n    description: edit {number} of all, and again edit {number}\n'
        )
        data = (text + more).encode()
        cuts = sorted(chance.randrange(len(data)) for _ in range(6))
        with paths.state.open("wb", buffering=0) as file:
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                select.select([], [], [], chance.choice((0.0, 0.01, 0.05, 0.3 if number == 1 else 0.02)))
                file.write(data[start:end])
    waited_for(lambda: is_settled(paths))


def reading(root: Path, until: Path, told: Path) -> None:
    """Reads as fast as it can until the last edit is seen, and writes down what it found."""
    board = opened(root)
    counts = {"right": 0, "raised": 0, "wrong": 0}
    tasks = revision = 0
    while not until.exists():
        try:
            state = board.read()
        except LizaError:
            counts["raised"] += 1
            continue
        texts = [task.description or "" for task in state.tasks]
        right = len(texts) >= tasks and state.revision >= revision and all(map(is_whole, texts))
        counts["right" if right else "wrong"] += 1
        tasks, revision = len(texts), state.revision
    told.write_bytes(msgspec.json.encode(counts))


@pytest.mark.parametrize(("readers", "edits"), [(1, 2), pytest.param(3, 40, marks=pytest.mark.campaign)])
def test_readers_never_see_half_an_entry_beside_an_unlocked_editor(tmp_path: Path, readers: int, edits: int) -> None:
    root = tmp_path
    first = re.sub(r"description: The \w+", "description: edit 0 of all, and again edit 0", FIRST)
    head, tail = first.split("agents:\n")
    # The tasks stand last, so that a cut takes some of them and leaves the rest a board.
    opened(root).create(head.replace("tasks:\n", f"agents:\n{tail}tasks:\n"))
    until = root / "over"
    children = [started(lambda told=root / f"reader-{number}": reading(root, until, told)) for number in range(readers)]
    begun = time.monotonic()
    editor = started(lambda: editing_in_place(Paths(root), edits))
    code = ended(editor)
    until.touch()
    assert [ended(pid) for pid in children] == [0] * readers
    assert code == 0
    seconds = time.monotonic() - begun
    found = [msgspec.json.decode((root / f"reader-{number}").read_bytes()) for number in range(readers)]
    total = {kind: sum(one[kind] for one in found) for kind in found[0]}
    assert total["wrong"] == 0
    assert total["right"] > 0
    state = check(root)
    assert [task.id for task in state.tasks] == ["t1", "t2", *(f"e{number}" for number in range(1, edits + 1))]
    assert all(is_whole(task.description or "") for task in state.tasks)
    assert state.revision == 1 + edits
    print(f"seed {SEED}: {edits} edits in place in {seconds:.1f} s, {readers} readers: {total}")


LONG = "human_notes:\n  - timestamp: 2026-01-01T12:00:00Z\n    message: one that is long\n"


def test_a_writer_that_pauses_for_long_is_not_read_early(tmp_path: Path) -> None:
    board = opened(tmp_path)
    board.create(FIRST)
    paths = Paths(tmp_path)
    text = board.read_text().replace("The first", "The first, by hand") + LONG
    with paths.state.open("w") as file:
        file.write(text[: -len(" that is long\n")])
        file.flush()
        long_ago = time.time() - 60
        os.utime(paths.state, (long_ago, long_ago))
        seen: queue.Queue[list[str]] = queue.Queue()
        reader = threading.Thread(target=lambda: seen.put(messages(opened(tmp_path).read())))
        reader.start()
        # It has looked, found the board standing still, and waits all the same.
        with pytest.raises(queue.Empty):
            seen.get(timeout=1.2)
        file.write(" that is long\n")
    assert seen.get(timeout=30) == ["one that is long"]
    reader.join()
    assert board.read().tasks[0].description == "The first, by hand"
