"""Servers of other checkouts make a merge untested; no other server does. With real servers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from liza.api import api_server
from liza.git.rules.slot_states import slot_ports
from liza.landing.land import land_merge
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.model.errors import Refused
from liza.project import listeners
from liza.system import locks, peers, processes
from tests.conftest import git
from tests.edges.merge_crew import Merges, copied, prepared
from tests.journeys.crews import BIN
from tests.servers import SERVE, Servers, choose_port, copy_python
from tests.servers import servers as servers
from tests.terminal_stand_in import TerminalStandIn

pytestmark = pytest.mark.skipif(not processes.has_proc(), reason="no /proc")
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with prepared(tmp_path_factory, ignored="data/\n") as root:
        return root


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    crew = copied(made, tmp_path)
    (crew.root / "serve.py").write_text(SERVE)
    (tmp_path / "serve.py").write_text(SERVE)
    (crew.root / "data").mkdir()
    return crew


def untested(crew: Merges) -> str:
    """What ``liza merge`` says of the next task, which its server keeps from being merged."""
    tip = crew.tip()
    message = crew.merge()
    assert crew.status("a") == "APPROVED"
    assert crew.tip() == tip
    assert message.startswith("untested: ")
    return message.removeprefix("untested: ")


def merges_as_tested(crew: Merges) -> bool:
    assert crew.merge() == ""
    return crew.status("a") == "MERGED" and crew.task("a").tested is True


def find(crew: Merges) -> str:
    """What a look finds before a gate; nothing is an empty text."""
    finding = listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [])
    return "" if finding is None else finding.text


def test_a_server_of_the_checkout_makes_a_merge_untested(crew: Merges, servers: Servers) -> None:
    crew.approved("a")
    port = choose_port()
    server = servers.start(crew.root, PYTHON, "serve.py", f"127.0.0.1@{port}")
    command = f"{Path(PYTHON).name} serve.py 127.0.0.1@{port}"
    assert untested(crew) == f"`{command}` of your checkout listens on {port}"
    assert crew.alarms()["merge_set_aside"].endswith(f"→ kill {server.pid}")
    servers.end(server)
    assert crew.merge("a") == ""
    assert crew.task("a").tested is True


@pytest.mark.parametrize("host", ["::1", "0.0.0.0", "::"])
def test_a_server_counts_at_each_address_of_the_machine(crew: Merges, servers: Servers, host: str) -> None:
    port = choose_port()
    servers.start(crew.root, PYTHON, "serve.py", f"{host}@{port}")
    assert find(crew).endswith(f"of your checkout listens on {port}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("evidence", ["module", "absolute script", "relative script", "program", "directory below"])
def test_a_server_counts_by_its_program_script_or_directory(
    crew: Merges, servers: Servers, tmp_path: Path, evidence: str
) -> None:
    port = choose_port()
    at = f"127.0.0.1@{port}"
    match evidence:
        case "module":
            servers.start(crew.root, PYTHON, "-m", "http.server", str(port))
        case "absolute script":
            servers.start(Path("/"), PYTHON, crew.root / "serve.py", at)
        case "relative script":
            servers.start(tmp_path, PYTHON, "repo/serve.py", at)
        case "program":
            servers.start(Path("/"), copy_python(crew.root / "target" / "app"), "-c", SERVE, at)
        case "directory below":
            servers.start(crew.root / "data", PYTHON, "-m", "http.server", str(port))
    assert find(crew).endswith(f"of your checkout listens on {port}")


@pytest.mark.campaign
def test_a_server_of_another_slot_makes_a_merge_untested(crew: Merges, servers: Servers, tmp_path: Path) -> None:
    slot = crew.approved("a")
    port = choose_port()
    server = servers.start(slot, PYTHON, "-m", "http.server", str(port))
    assert untested(crew).endswith(f"of slot {slot.name} listens on {port}")
    servers.end(server)
    git(crew.root, "worktree", "add", "-q", str(tmp_path / "mine"))
    servers.start(tmp_path / "mine", PYTHON, "-m", "http.server", str(port))
    assert find(crew).endswith(f"of the worktree {tmp_path / 'mine'} listens on {port}")


def test_databases_and_servers_from_elsewhere_are_left_alone(crew: Merges, servers: Servers, tmp_path: Path) -> None:
    database = copy_python(tmp_path / "bin" / "postgres")
    for directory in (crew.root / "data", crew.root):
        servers.start(directory, database, "-c", SERVE, f"127.0.0.1@{choose_port()}")
    servers.start(tmp_path, PYTHON, tmp_path / "serve.py", f"127.0.0.1@{choose_port()}")
    servers.start(tmp_path, PYTHON, "-m", "http.server", str(choose_port()))
    assert find(crew) == ""


@pytest.mark.campaign
def test_the_server_of_the_crew_is_left_alone(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    api_server.start(crew.crew.paths)
    try:
        command = f"./run-tests {crew.crew.paths.api_port.read_text()}"
        assert listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [command]) is None
        # Its lock tells it from a server of the person, not its port or its directory.
        monkeypatch.setattr(locks, "find_holder", lambda path: None)
        assert listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [command]) is not None
    finally:
        monkeypatch.undo()
        api_server.stop(crew.crew.paths)


def test_the_page_of_the_crew_keeps_no_merge_from_being_tested(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    port = str(choose_port())
    with TerminalStandIn([BIN / "liza", "web", "--port", port], crew.root) as terminal:
        terminal.wait_for_text("#t=")
        command = f"./run-tests {port}"
        assert listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [command]) is None
        monkeypatch.setattr(locks, "find_holders", lambda path: ())
        assert listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [command]) is not None


def test_a_port_counts_only_if_the_commit_names_it(crew: Merges, servers: Servers) -> None:
    server = servers.start(crew.root, PYTHON, "serve.py", "127.0.0.1@0")
    inodes, listening = set(peers.iter_sockets(server.pid)), peers.list_listening()
    (address,) = [address for inode, address in listening.items() if inode in inodes]
    counts_once_named(crew, address)


def test_a_unix_socket_counts_only_if_the_commit_names_it(crew: Merges, servers: Servers, tmp_path: Path) -> None:
    servers.start(crew.root, PYTHON, "serve.py", str(tmp_path / "app.sock"))
    counts_once_named(crew, str(tmp_path / "app.sock"))


def counts_once_named(crew: Merges, address: str) -> None:
    assert find(crew) == ""
    (crew.root / "settings").write_text(f"connect={address}\n")
    assert find(crew) == ""
    git(crew.root, "add", "settings")
    assert find(crew).endswith(f"of your checkout listens on {address}")
    git(crew.root, "rm", "-q", "--cached", "settings")
    assert find(crew) == ""
    assert listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [f"./test --at={address}"]) is not None


def test_a_server_on_ports_of_its_own_slot_is_ignored(crew: Merges, servers: Servers) -> None:
    slot = crew.crew.paths.slot("s1")
    slot.mkdir(parents=True, exist_ok=True)
    servers.start(slot, PYTHON, "-m", "http.server", str(slot_ports("s1")[3]))
    assert find(crew) == ""
    servers.start(slot, PYTHON, "-m", "http.server", str(slot_ports("s2")[3]))
    assert find(crew).endswith(f"of slot s1 listens on {slot_ports('s2')[3]}")


@pytest.mark.campaign
def test_a_server_that_a_gate_starts_is_left_alone(crew: Merges, servers: Servers) -> None:
    crew.approved("a")
    port = choose_port()
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    crew.tests(f'{PYTHON} -m http.server {port} & until {PYTHON} -c "{connect}"; do sleep 0.1; done')
    assert merges_as_tested(crew)
    # Gates run at the same time: one looks while another one's server still runs, also one that works elsewhere.
    slot = crew.crew.paths.slot("merge-2")
    slot.mkdir()
    servers.start(slot, PYTHON, "-m", "http.server", str(port))
    environment = {"LIZA_RUN": "merge", "LIZA_ROOT": str(crew.root)}
    servers.start(crew.root, PYTHON, "-m", "http.server", str(choose_port()), **environment)
    tested = ["merge", "merge-2"]
    assert listeners.find_servers(crew.crew, crew.crew.git, tested, []) is None
    assert listeners.find_servers(crew.crew, crew.crew.git, tested[:1], []) is not None


@contextmanager
def during_gate(crew: Merges) -> Iterator[tuple[Path, Path]]:
    """Two FIFOs: the gate writes into the first one, and waits for the second one."""
    begun, go_on = crew.check.parent / "begun", crew.check.parent / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    crew.tests(f"echo > {begun}; cat {go_on}")
    yield begun, go_on


@pytest.mark.campaign
def test_a_server_that_starts_during_the_gate_makes_it_untested(crew: Merges, servers: Servers) -> None:
    crew.approved("a")
    port = choose_port()
    with during_gate(crew) as (begun, go_on):

        def start() -> None:
            begun.read_text()
            servers.start(crew.root, PYTHON, "-m", "http.server", str(port))
            go_on.write_text("")

        person = threading.Thread(target=start)
        person.start()
        assert untested(crew).endswith(f"listens on {port}")
        person.join()


def test_nothing_is_merged_or_landed_beside_a_foreign_server(crew: Merges, servers: Servers) -> None:
    crew.approved("b")
    assert crew.merge() == ""
    crew.approved("a")
    ran = crew.check.parent / "ran"
    crew.tests(f"echo >> {ran}")
    servers.start(crew.root, PYTHON, "-m", "http.server", str(choose_port()))
    untested(crew)
    with pytest.raises(Refused, match=r"nothing was landed: integration is untested: .* of your checkout listens on"):
        land_merge(crew.crew, "main")
    git(crew.root, "commit", "-q", "--allow-empty", "-m", "mine")
    with pytest.raises(Refused, match=r"the merge with integration is untested: .* of your checkout listens on"):
        sync(crew.crew, "main")
    assert not ran.exists()


@pytest.mark.campaign
def test_a_person_merges_untested_what_is_not_red(crew: Merges, servers: Servers) -> None:
    crew.approved("a", "b")
    servers.start(crew.root, PYTHON, "-m", "http.server", str(choose_port()))
    crew.tests("exit 1")
    merge(crew.crew, "a", untested=True)
    assert crew.status("a") == "INTEGRATION_FAILED"
    crew.tests("exit 0")
    merge(crew.crew, "b", untested=True)
    assert crew.status("b") == "MERGED"
    assert crew.task("b").tested is False
    assert "merged_untested" in crew.alerts()


def test_of_processes_that_share_a_server_the_first_is_named(crew: Merges, servers: Servers) -> None:
    server = servers.start(crew.root, PYTHON, "serve.py", f"127.0.0.1@{choose_port()}", "fork")
    finding = listeners.find_servers(crew.crew, crew.crew.git, ["merge"], [])
    assert finding is not None
    assert finding.hint == f"kill {server.pid}"
