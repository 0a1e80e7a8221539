"""Which listening processes count as servers of another checkout, and what is said of them."""

from __future__ import annotations

import pytest

from liza.model.gates import GateFindingKind
from liza.model.value_classes import replace
from liza.project.rules import foreign_servers
from liza.project.rules.foreign_servers import CheckoutTrees, ListeningProcess

TREES = CheckoutTrees("/me/shop", "/me/shop.worktrees", ("/me/shop-two",), ("merge", "merge-2"))
OLD_TREES = replace(TREES, slots="/me/shop/.worktrees/.slots")
GIVEN_OUT = range(32768, 61000)
VITE = ListeningProcess(7, 1, "/usr/bin/node", "/me/shop", ("node", "/me/shop/node_modules/.bin/vite"), (), ("5173",))


def owner(process: ListeningProcess, trees: CheckoutTrees = TREES, named: str = "") -> str | None:
    """Whose server the process is, in words; None if it is left alone."""
    servers = foreign_servers.find_foreign_servers([process], trees, GIVEN_OUT, lambda address: address == named)
    assert not servers or foreign_servers.may_run_sources(process.program, trees)
    return servers[0].owner.text if servers else None


@pytest.mark.parametrize(
    ("program", "directory", "files", "expected"),
    [
        ("/usr/bin/node", "/me/shop", (), "your checkout"),
        ("/usr/bin/node", "/me/shop/web", (), "your checkout"),
        ("/usr/bin/node", "/me/shop.worktrees/s1/web", (), "slot s1"),
        ("/usr/bin/node", "/me/shop.worktrees/s1 (deleted)", (), "slot s1"),
        ("/usr/bin/node", "/me/shop.worktrees/merge", (), None),
        ("/usr/bin/node", "/me/shop.worktrees/merge-2", (), None),
        ("/usr/bin/node", "/me/shop.worktrees", (), None),
        ("/usr/bin/node", "/me/shop-two/web", (), "the worktree /me/shop-two"),
        ("/usr/bin/node", "/me/shop-three", (), None),
        ("/usr/bin/node", "/", ("/etc/hosts", "/me/shop/serve.js"), "your checkout"),
        ("/usr/bin/node", "/me/shop/.liza/run", (), None),
        ("/usr/bin/node", "/me/shop/.git", (), None),
        ("/opt/python/bin/python3.13t", "/me/shop", (), "your checkout"),
        ("/usr/bin/php8.2", "/me/shop", (), "your checkout"),
        ("/usr/sbin/php-fpm8.2", "/me/shop", (), "your checkout"),
        ("/usr/lib/erlang/bin/beam.smp", "/me/shop", (), "your checkout"),
        ("/tmp/go-build42/b001/exe/shop", "/me/shop", (), "your checkout"),
        ("/me/.cargo-target/debug/shop", "/me/shop", (), "your checkout"),
        ("/tmp/go-build42/b001/exe/shop", "/me", (), None),
        ("/me/shop/target/debug/shop", "/", (), "your checkout"),
        ("/me/shop/target/debug/shop (deleted)", "/", (), "your checkout"),
        ("/me/shop.worktrees/s2/bin/shop", "/", (), "slot s2"),
        ("/usr/lib/postgresql/15/bin/postgres", "/me/shop/pgdata", ("/me/shop/postgresql.conf",), None),
        ("/usr/bin/redis-server", "/me/shop", (), None),
        ("/usr/bin/ssh", "/me/shop", ("/me/shop/ssh_config",), None),
        ("/usr/bin/dnsmasq", "/me/shop", (), None),
        ("/opt/google/chrome/chrome", "/me/shop.worktrees/s1", (), None),
    ],
)
def test_a_server_is_recognized_by_its_program_or_runtime(
    program: str, directory: str, files: tuple[str, ...], expected: str | None
) -> None:
    process = replace(VITE, program=program, directory=directory, files=files)
    assert owner(process) == expected
    assert owner(replace(process, is_tested=True)) is None


def test_slots_inside_the_checkout_are_slots() -> None:
    assert owner(replace(VITE, directory="/me/shop/.worktrees/.slots/s1"), OLD_TREES) == "slot s1"
    assert owner(replace(VITE, directory="/me/shop/.worktrees/.slots/merge"), OLD_TREES) is None


@pytest.mark.parametrize(
    ("address", "words", "named", "counts"),
    [
        ("5173", (), "", True),
        ("32767", (), "", True),
        ("32768", (), "", False),
        ("50051", (), "", False),
        ("50051", (), "50051", True),
        ("50051", ("node", "--port=50051"), "", True),
        ("50051", ("puma 6.4 (tcp://localhost:50051) [shop]",), "", True),
        ("50051", ("node", "--port=150051"), "", False),
        ("/tmp/app.sock", (), "", False),
        ("/tmp/app.sock", ("node", "/tmp/app.sock"), "", False),
        ("/tmp/app.sock", (), "/tmp/app.sock", True),
        ("@app", (), "@app", True),
    ],
)
def test_a_server_counts_only_where_the_tests_may_know_it(
    address: str, words: tuple[str, ...], named: str, counts: bool
) -> None:
    process = replace(VITE, addresses=(address,), words=words)
    assert owner(process, named=named) == ("your checkout" if counts else None)


def test_the_ports_of_a_slot_are_its_own_affair() -> None:
    in_slot = replace(VITE, directory="/me/shop.worktrees/s1", addresses=("21020",))
    assert owner(in_slot) is None
    assert owner(replace(in_slot, addresses=("21040",))) == "slot s1"
    assert owner(replace(in_slot, addresses=("30000",))) == "slot s1", "a port of the slot merge"
    assert owner(replace(in_slot, directory="/me/shop")) == "your checkout"
    assert owner(in_slot, named="21020") == "slot s1"
    # Beyond the first 200 slots the numbers repeat.
    many = replace(TREES, tested=("s201",))
    assert owner(replace(in_slot, addresses=("21020",)), many) == "slot s1"


def test_a_finding_names_the_servers_and_how_to_end_them() -> None:
    worker = replace(VITE, pid=8, parent=7)
    others = [replace(VITE, pid=pid, addresses=(str(pid), "24678")) for pid in (3000, 3001, 3002)]
    servers = foreign_servers.find_foreign_servers([VITE, worker, *others], TREES, GIVEN_OUT, lambda address: False)
    finding = foreign_servers.judge_servers(servers)
    assert finding is not None
    assert finding.kind is GateFindingKind.UNTESTED
    assert finding.hint == "kill 7 3000 3001 3002"
    assert finding.text == (
        "`node vite` of your checkout listens on 5173; `node vite` of your checkout listens on 3000, 24678; "
        "`node vite` of your checkout listens on 3001, 24678; so do 1 more"
    )
    assert foreign_servers.judge_servers([]) is None


def test_a_child_with_a_server_of_its_own_is_named() -> None:
    child = replace(VITE, pid=8, parent=7, addresses=("8080",))
    servers = foreign_servers.find_foreign_servers([VITE, child], TREES, GIVEN_OUT, lambda address: False)
    assert [server.process.pid for server in servers] == [7, 8]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("python3", "-m", "http.server", "8931"), "python3 -m http.server 8931"),
        (("/usr/bin/python3", "serve.py", "--x", "1", "2"), "python3 serve.py --x 1 …"),
        (("puma 6.4 (tcp://localhost:3000) [shop]",), "puma 6.4 (tcp://localhost:3000) [shop]"),
        ((), "node"),
        (("node", "-e", "a\n\tb`c`\x1b[2J\udcff"), "node -e a b'c'?[2J?"),
        (("node", "x" * 80), "node " + "x" * 55 + " …"),
        (("node", "--token=abcdefgh12345"), "node --token=[redacted: token]"),
    ],
)
def test_a_command_is_shown_in_a_few_printable_words(words: tuple[str, ...], text: str) -> None:
    assert foreign_servers.describe_command(replace(VITE, words=words)) == text
