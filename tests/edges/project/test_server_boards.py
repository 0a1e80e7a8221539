"""What `init`, `join` and `board import` refuse, with a real PostgreSQL and real repositories; then nothing is left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from liza.board import crew_moves
from liza.board.address import read_address
from liza.board.postgresql.hosts_table import HostsTable
from liza.crew.crew import Crew, find_crew
from liza.crew.result import Result
from liza.landing.remotes import record_first_origin
from liza.model.configuration import Confinement
from liza.model.errors import BoardServerRefused, LizaError, UsageError
from liza.model.model import Agent
from liza.model.paths import Paths
from liza.model.statuses import AgentStatus
from liza.model.value_classes import replace
from liza.project import board_moves, shared_board
from liza.project.baseline import InitOptions, ReportFact
from liza.project.init import init as init_verb
from liza.project.join import join as join_verb
from liza.recovery.doctor import doctor
from liza.system.locks import Lock
from liza.tasks import pause
from tests.conftest import git
from tests.postgresql import PostgreSQL
from tests.unit.boards import task


@pytest.fixture
def clone(remote: Path) -> Path:
    root = remote.parent / "clone"
    git(remote.parent, "clone", "-q", str(remote), str(root))
    return root


def options(url: str | None, **more: object) -> InitOptions:
    fields = {"goal": "Pay by invoice", "no_test": True, "confinement": Confinement.OFF, "program": "script:true"}
    return InitOptions(board=url, host=None if url is None else "h1", **{**fields, **more})  # type: ignore[arg-type]


def init(root: Path, chosen: InitOptions) -> None:
    init_verb(root, chosen, record_origin=record_first_origin)


def join(root: Path, url: str, host: str | None = None, say: ReportFact = lambda name, text: None) -> Result:
    return join_verb(root, url, host, say, record_first_origin)


@contextlib.contextmanager
def refused(message: str, *clones: Path) -> Iterator[None]:
    """The block is refused with ``message`` and one command, and leaves nothing of a crew in ``clones``."""
    with pytest.raises(LizaError, match=message) as caught:
        yield
    assert caught.value.hint
    assert [path for path in clones if (path / ".liza").exists()] == []


def test_init_on_a_server_needs_a_remote(clone: Path, url: str) -> None:
    git(clone, "remote", "remove", "origin")
    with refused("has no remote", clone):
        init(clone, options(url))
    git(clone, "remote", "add", "one", "x")
    git(clone, "remote", "add", "two", "x")
    with refused("the remotes are one, two, and none is origin", clone):
        init(clone, options(url))


def test_init_refuses_another_integration_at_the_remote(clone: Path, url: str) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "other")
    git(clone, "push", "-q", "origin", "HEAD:integration")
    git(clone, "reset", "-q", "--hard", "origin/main")
    with refused("origin has a branch integration at", clone):
        init(clone, options(url))


def test_init_in_a_shallow_clone_is_refused(clone: Path, url: str) -> None:
    git(clone, "commit", "-q", "--allow-empty", "-m", "more")
    git(clone, "push", "-q", "origin", "HEAD:main")
    shallow = clone.parent / "shallow"
    git(clone.parent, "clone", "-q", "--depth", "1", f"file://{clone.parent}/shop.git", str(shallow))
    with refused("this clone is shallow", shallow):
        init(shallow, options(url))


def test_a_database_without_tables_names_the_migration(clone: Path, postgresql: PostgreSQL) -> None:
    postgresql.run_sql("CREATE DATABASE bare")
    try:
        with refused("has not the tables of this Liza", clone):
            init(clone, options(postgresql.url("bare")))
        board_moves.migrate(None, postgresql.url("bare"))
        init(clone, options(postgresql.url("bare")))
    finally:
        postgresql.drop_database("bare")


@pytest.mark.parametrize("part", ["database", "role", "directory"])
def test_a_wrong_address_is_named_before_the_tests_run(clone: Path, postgresql: PostgreSQL, part: str) -> None:
    wrong = {
        "database": postgresql.url("nowhere"),
        "role": postgresql.url(role="nobody-at-all"),
        "directory": postgresql.url().replace(str(postgresql.sockets), "/nowhere"),
    }[part]
    expected = {"database": "no database nowhere", "role": "no role nobody-at-all", "directory": "/nowhere"}[part]
    for verb in (lambda: init(clone, options(wrong)), lambda: join(clone, wrong)):
        with refused(expected, clone):
            verb()
    with pytest.raises(BoardServerRefused):
        board_moves.migrate(None, wrong)


def test_names_of_hosts_come_from_the_machine() -> None:
    assert shared_board.propose_host_name("Ann's MacBook.local") == "ann-s-macbook"
    assert shared_board.propose_host_name("...") == "host"
    assert shared_board.propose_host_name("x" * 40) == "x" * 32


def test_a_wrong_name_of_a_host_is_refused(clone: Path, url: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a host"):
        join(clone, url, "H 1")


def test_a_killed_join_is_done_again(clone: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    init(clone, options(url))
    other = clone.parent / "other"
    git(clone.parent, "clone", "-q", str(clone.parent / "shop.git"), str(other))
    with monkeypatch.context() as patch:
        patch.setattr("liza.project.join.undo_init", lambda crew, surveyed: None)
        patch.setattr("liza.project.join.write_address", kill)
        with pytest.raises(KeyboardInterrupt):
            join(other, url, "h2")
    assert (other / ".liza" / "init").exists()
    assert join(other, url, "h2").result == "changed"
    address = read_address(Paths(other).board_address)
    assert address is not None
    assert address.host == "h2"
    assert not (other / ".liza" / "init").exists()


def kill(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_remote_that_is_gone_is_reported_by_join(clone: Path, url: str) -> None:
    init(clone, options(url))
    other = clone.parent / "other"
    git(clone.parent, "clone", "-q", str(clone.parent / "shop.git"), str(other))
    git(other, "remote", "set-url", "origin", "/nowhere")
    facts: dict[str, str] = {}
    join(other, url, "h2", facts.__setitem__)
    assert "git ls-remote origin" in facts["branch"]


# ── documents ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hosts(clone: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Crew, Crew]:
    """One crew, as two clones have it."""
    init(clone, options(url))
    other = clone.parent / "other"
    git(clone.parent, "clone", "-q", str(clone.parent / "shop.git"), str(other))
    join(other, url, "h2")
    return find_crew(clone), find_crew(other)


def goal_page(crew: Crew) -> Path:
    return crew.paths.specs / "goal.md"


def test_documents_of_the_crew_come_to_each_host(hosts: tuple[Crew, Crew]) -> None:
    first, second = hosts
    assert goal_page(second).read_text() == goal_page(first).read_text()
    (first.paths.specs / "mail.md").write_text("Send it at once.\n")
    with first.change("human:ann", "add") as tx:
        tx.state = replace(tx.state, tasks=(task("mail", spec_ref=".liza/specs/mail.md#when"),))
    second.update_pages()
    assert (second.paths.specs / "mail.md").read_text() == "Send it at once.\n"


def test_a_document_changed_by_hand_is_shared(hosts: tuple[Crew, Crew]) -> None:
    first, second = hosts
    first.update_pages()
    goal_page(first).write_text("# More\n")
    first.update_pages()
    second.update_pages()
    assert goal_page(second).read_text() == "# More\n"


def test_of_two_versions_of_a_document_both_are_kept(hosts: tuple[Crew, Crew]) -> None:
    first, second = hosts
    first.update_pages()
    goal_page(second).write_text("# Of the second\n")
    second.update_pages()
    goal_page(first).write_text("# Of the first\n")
    first.update_pages()
    assert goal_page(first).read_text() == "# Of the second\n"
    (kept,) = first.paths.specs.glob("goal.*.mine")
    assert kept.read_text() == "# Of the first\n"
    assert str(kept) in first.paths.alerts.read_text()


# ── import ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def files(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Crew:
    """A paused crew on files."""
    init(clone, options(None))
    monkeypatch.chdir(clone)
    crew = find_crew()
    with crew.change("human:ann", "note"):
        pass
    pause.pause(crew, "moving")
    return crew


def test_a_running_supervisor_refuses_an_import(files: Crew, url: str) -> None:
    with files.change("human:ann", "agent") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status=AgentStatus.IDLE))
    with Lock(files.paths.supervisor_lock("coder-1")), refused("supervisors run: coder-1"):
        board_moves.import_board(files, url)
    assert files.paths.state.exists()


def test_an_import_that_was_killed_goes_on(files: Crew, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files.paths.state.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("liza.project.board_moves.write_address", kill)
        with pytest.raises(KeyboardInterrupt):
            board_moves.import_board(files, url)
    assert files.paths.state.read_bytes() == before
    board_moves.import_board(find_crew(), url)
    crew = find_crew()
    assert crew.is_on_server
    assert crew.board.read_text().encode() == before
    assert list(crew.board.signals()) == ["PAUSE"]
    assert not crew.paths.signal("PAUSE").exists()


def test_an_export_that_was_killed_goes_on(files: Crew, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    board_moves.import_board(files, url)
    crew = find_crew()
    text = crew.board.read_text()
    with monkeypatch.context() as patch:
        patch.setattr("liza.project.board_moves._rename", kill)
        with pytest.raises(KeyboardInterrupt):
            board_moves.export_board(crew, None)
    board_moves.export_board(find_crew(), None)
    crew = find_crew()
    assert not crew.is_on_server
    assert crew.board.read_text() == text


def test_worktrees_stay_with_their_host_through_both_moves(files: Crew, url: str) -> None:
    before, named = task("old", worktree="s1"), task("new", worktree="h1-s2")
    board_moves.import_board(files, url, "h1")
    other = files.paths.root.parent / "other"
    git(other.parent, "clone", "-q", str(other.parent / "shop.git"), str(other))
    join(other, url, "h2")
    first, second = find_crew(), find_crew(other)
    first.paths.slot("s1").mkdir(parents=True)
    assert (first.is_here(before), first.is_here(named)) == (True, True)
    assert (second.is_here(before), second.is_here(named)) == (False, False)
    board_moves.export_board(first, None)
    assert find_crew().is_here(named)


def test_a_clone_changes_its_name_while_agents_run_elsewhere(clone: Path, url: str) -> None:
    init(clone, options(url))
    other = clone.parent / "other"
    git(other.parent, "clone", "-q", str(other.parent / "shop.git"), str(other))
    join(other, url, "h1")
    address = read_address(find_crew(clone).paths.board_address)
    assert address is not None
    crew = find_crew(clone)
    with crew.change("human:ann", "agent") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status=AgentStatus.IDLE))
    with crew_moves.connected(address) as connection:
        table, incarnation = HostsTable(connection, address.crew), uuid4()
        table.begin("h3", incarnation, uuid4(), "boot", "third:/shop")
        assert table.take_agent("coder-1", "h3", incarnation)
    assert find_crew(other).is_supervised("coder-1")
    assert join(other, url, "h2").message == "this host is h2 from now on, not h1"


def test_export_of_a_board_in_files_is_refused(files: Crew) -> None:
    with refused("is in the file"):
        board_moves.export_board(files, None)


def test_an_export_replaces_nothing(files: Crew, url: str, tmp_path: Path) -> None:
    board_moves.import_board(files, url)
    with refused("exists already"):
        board_moves.export_board(find_crew(), tmp_path)


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_doctor_checks_server_and_remote(clone: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    init(clone, options(url))
    monkeypatch.chdir(clone)
    findings = {finding.about: finding for finding in doctor(clone).findings}
    assert findings["server"].text.startswith("PostgreSQL ")
    assert "ms an answer: crew shop, this host is h1" in findings["server"].text
    assert findings["remote"].ok
    monkeypatch.setattr("liza.system.clock.SystemClock.now", lambda self: datetime.now(UTC) + timedelta(minutes=10))
    clock = {finding.about: finding for finding in doctor(clone).findings}["clock"]
    assert "600 s ahead of" in clock.text
