"""What stands in the place of a file that Liza reads, and is none: a pipe, a device, a socket, a directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from liza.model.errors import LizaError, NotRegularFile, UsageError
from liza.model.paths import Paths
from liza.model.session_ends import SessionOutcome
from liza.model.spending import LedgerEntry
from liza.programs import reported_figures
from liza.programs.liveness import EndedSession
from liza.programs.presets import preset_table
from liza.programs.presets.preset import UsageFormat as Form
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.supervisor.conclude import conclude_session
from liza.system import untrusted_files
from liza.usage import ledger
from tests.edges.git.test_slots_place import begun, drafted

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def _pipe_behind_a_link(place: Path) -> None:
    os.mkfifo(place.with_name("pipe"))
    place.symlink_to("pipe")


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(place.parent)
        one.bind(place.name)


ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a pipe behind a link": _pipe_behind_a_link,
    "a device without an end": lambda place: place.symlink_to("/dev/zero"),
    "a directory": Path.mkdir,
    "a socket": _socket,
}
UNREADABLE: dict[str, Callable[[Path], object]] = {
    **ODD,
    "a link to itself": lambda place: place.symlink_to(place.name),
    "what no read gives": lambda place: place.symlink_to("/proc/self/mem"),
}


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".liza").mkdir()
    return Paths(tmp_path)


@pytest.mark.parametrize("lay", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", ["liza.toml", ".liza/programs.toml"])
def test_an_irregular_program_table_is_named_and_not_awaited(
    paths: Paths, name: str, lay: Callable[[Path], object]
) -> None:
    lay(paths.root / name)
    with pytest.raises(NotRegularFile, match=f"{name} is not a regular file") as caught:
        preset_table.load_presets(paths, paths.root)
    assert caught.value.hint == f"mv {paths.root / name} {paths.root / name}.odd"


def test_a_too_large_or_nested_program_table_is_named(paths: Paths) -> None:
    table = paths.root / "liza.toml"
    table.write_text("x = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"liza\.toml: its values are nested too deeply") as caught:
        preset_table.read_layer(table, "liza.toml")
    assert "EDITOR" in caught.value.hint
    with table.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotRegularFile, match=r"liza\.toml has more than 1 MB"):
        preset_table.read_layer(table, "liza.toml")


@pytest.mark.parametrize("lay", ODD.values(), ids=ODD)
def test_an_irregular_ledger_is_named_to_readers_and_writers(paths: Paths, lay: Callable[[Path], object]) -> None:
    lay(paths.usage)
    with pytest.raises(NotRegularFile, match="is not a regular file"):
        ledger.read_entries(paths)
    one = LedgerEntry(run="coder-1.1", time=NOW, kind="work", program="p", outcome="finished", seconds=1)
    with pytest.raises((LizaError, OSError)):
        ledger.append_entry(paths, one)


@pytest.mark.parametrize("lay", UNREADABLE.values(), ids=UNREADABLE)
def test_non_files_in_place_of_output_or_screen_are_ignored(paths: Paths, lay: Callable[[Path], object]) -> None:
    run = RunDir(paths, "coder-1.1")
    run.path.mkdir(parents=True)
    lay(run.output_path)
    told = run.unreadable()
    assert told is not None
    assert told.startswith(f"{run.output_path} cannot be read: ")
    assert (run.output_tail(), run.last_output()) == ("", "")
    assert reported_figures.read_usage(Form(form="text", pattern="(?P<input>[0-9]+)"), run.output_path) is None
    run.last_output_time()
    run.output_path.rename(run.screen_path)
    assert run.last_output() == ""


@pytest.mark.parametrize(
    "lay", [UNREADABLE["a link to itself"], UNREADABLE["what no read gives"]], ids=["link", "proc"]
)
def test_a_session_with_unreadable_output_is_concluded_with_the_reason(
    repo: Path, lay: Callable[[Path], object]
) -> None:
    crew = begun(repo)
    drafted(crew)
    run = crew.run_dir("coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW, task="first"))
    lay(run.output_path)
    (run.path / "exit.json").write_bytes(msgspec.json.encode(EndedSession(time=NOW, code=3)))
    came = conclude_session(crew, run, preset_table.load_presets(crew.paths).resolve("claude"), {}, print)
    assert run.is_concluded()
    assert came.outcome is SessionOutcome.CRASHED
    assert f"{run.output_path} cannot be read: " in came.reason
    assert [one.used for one in ledger.read_entries(crew.paths)] == [None]


def test_a_file_is_read_to_its_limit_or_is_none(paths: Paths) -> None:
    place = paths.root / "fact"
    assert untrusted_files.read_if_exists(place) is None
    assert untrusted_files.read_if_exists(place / "below") is None
    place.write_bytes(b"x" * 10)
    assert untrusted_files.read_if_exists(place, 10) == b"x" * 10
    assert untrusted_files.read_if_exists(place / "below") is None
    with pytest.raises(NotRegularFile):
        untrusted_files.read_if_exists(place, 9)
