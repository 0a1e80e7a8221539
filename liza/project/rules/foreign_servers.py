"""Which servers on this machine run sources of another checkout, so that tests may test those instead. Pure.

A server is foreign if its program lies in another checkout, or if it is a runtime whose script or working directory
lies there, and if the tests may know its address. Databases, proxies, browsers and build daemons meet no part of that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from liza.git.rules.slot_states import slot_ports
from liza.model.gates import GateFinding, GateFindingKind
from liza.model.value_classes import Value
from liza.text.redaction import redact

RUNTIMES = frozenset(
    (
        *("beam.smp", "bun", "busybox", "dart", "dartvm", "deno", "dotnet", "guile", "java", "julia", "lua", "luajit"),
        *("mono", "node", "nodejs", "perl", "php", "php-cgi", "php-fpm", "pypy", "python", "r", "racket", "ruby"),
        *("sbcl", "swipl", "tclsh", "uwsgi"),
        # These serve the sources in their working directory, and nothing else.
        *("hugo", "mdbook", "zola"),
    )
)
"""Names of programs that run or serve the sources that they are given or that are where they work, without versions."""
_VERSION = re.compile(r"[-.]?\d[\d.]*[a-z]?$")
_FRESHLY_BUILT = re.compile(r"/(go-build[^/]*|debug|release)/")
"""Directories of programs that `go run` and `cargo run` have just built from the sources where they work."""
_DELETED = " (deleted)"  # the kernel adds it to the path of a program or directory that was removed
_NO_SOURCES = frozenset((".git", ".liza"))
MAX_NAMED = 3
"""Servers that a message names."""
_MAX_WORDS, _MAX_LENGTH = 4, 60  # of a command line in a message: words and characters


class Owner(Value):
    """A checkout in words. ``slot``: the name of the slot that it is in, if any."""

    text: str
    slot: str | None = None


class CheckoutTrees(Value):
    """Directories with sources of the project, as absolute paths: the person's ``checkout``, the directory of the
    crew's ``slots``, and ``others``, further worktrees of the repository. ``tested``: names of the slots that have the
    tested commit."""

    checkout: str
    slots: str
    others: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()

    def find_owner(self, path: str) -> Owner | None:
        """Return the checkout that an absolute path lies in; None for the tested one, and for a path in none."""
        path = path.removesuffix(_DELETED)
        slot = _first_part(path, self.slots)
        if slot is not None:
            return Owner(f"slot {slot}", slot) if slot and slot not in self.tested else None
        for tree in self.others:
            if _first_part(path, tree) is not None:
                return Owner(f"the worktree {tree}")
        part = _first_part(path, self.checkout)
        return None if part is None or part in _NO_SOURCES else Owner("your checkout")


def _first_part(path: str, directory: str) -> str | None:
    """Return the first part of a path below a directory, empty for the directory itself; None for a path outside."""
    if path == directory:
        return ""
    return path[len(directory) + 1 :].partition("/")[0] if path.startswith(f"{directory}/") else None


class ListeningProcess(Value):
    """A process that listens. ``program`` and ``directory`` are absolute paths. ``words``: its command line; ``files``:
    the absolute paths of existing files that it names. ``addresses``: ports, and paths of Unix sockets. ``is_tested``:
    a test of the candidate started it."""

    pid: int
    parent: int | None
    program: str
    directory: str
    words: tuple[str, ...]
    files: tuple[str, ...]
    addresses: tuple[str, ...]
    is_tested: bool = False


class ForeignServer(Value):
    """A process whose server the tests may take for their own, at these addresses."""

    process: ListeningProcess
    owner: Owner
    addresses: tuple[str, ...]


def may_run_sources(program: str, trees: CheckoutTrees) -> bool:
    """Return whether a program can be a foreign server: it lies in another checkout, or runs what is elsewhere."""
    return trees.find_owner(program) is not None or _is_runtime(program)


def _is_runtime(program: str) -> bool:
    path = program.removesuffix(_DELETED)
    name = _VERSION.sub("", path.rpartition("/")[2]).lower()
    return name in RUNTIMES or _FRESHLY_BUILT.search(path) is not None


def find_foreign_servers(
    processes: Iterable[ListeningProcess], trees: CheckoutTrees, given_out: range, is_named: Callable[[str], bool]
) -> tuple[ForeignServer, ...]:
    """Return the foreign servers. Of processes that share a server, the one that started the others is returned.

    ``given_out``: the ports that the kernel gives out by itself: they are not known beforehand.
    ``is_named``: whether the tested commit or its test commands name an address.
    """
    servers = []
    for process in processes:
        owner = None if process.is_tested else _find_owner(process, trees)
        if owner is None:
            continue
        addresses = tuple(
            address
            for address in process.addresses
            if _may_be_known(address, process, owner, trees, given_out) or is_named(address)
        )
        if addresses:
            servers.append(ForeignServer(process, owner, addresses))
    shared = {(server.process.pid, address) for server in servers for address in server.addresses}
    return tuple(
        server
        for server in servers
        if not any((server.process.parent, address) in shared for address in server.addresses)
    )


def _find_owner(process: ListeningProcess, trees: CheckoutTrees) -> Owner | None:
    owner = trees.find_owner(process.program)
    if owner is not None or not _is_runtime(process.program):
        return owner
    paths = (*process.files, process.directory)
    return next((owner for owner in map(trees.find_owner, paths) if owner is not None), None)


def _may_be_known(
    address: str, process: ListeningProcess, owner: Owner, trees: CheckoutTrees, given_out: range
) -> bool:
    """Return whether tests may connect to an address that no file of their commit names: the usual port of a tool, or
    one that a person chose.

    The ports of another slot are not known to the tests: they have ports of their own.
    """
    if not address.isdecimal():
        return False
    port = int(address)
    if owner.slot is not None and port in slot_ports(owner.slot):
        return any(port in slot_ports(slot) for slot in trees.tested)
    return port not in given_out or is_word_in(address, process.words)


def is_word_in(address: str, texts: Iterable[str]) -> bool:
    """Return whether one of the texts contains the address as a word."""
    pattern = re.compile(rf"(?<!\w){re.escape(address)}(?!\w)")
    return any(pattern.search(text) for text in texts)


def judge_servers(servers: Sequence[ForeignServer]) -> GateFinding | None:
    """Return the finding that the tests may have tested other sources, with the command that ends the servers."""
    if not servers:
        return None
    pids = " ".join(str(server.process.pid) for server in servers)
    return GateFinding(GateFindingKind.UNTESTED, "; ".join(_describe(servers)), f"kill {pids}")


def _describe(servers: Sequence[ForeignServer]) -> Iterator[str]:
    for server in servers[:MAX_NAMED]:
        command = describe_command(server.process)
        yield f"`{command}` of {server.owner.text} listens on {', '.join(map(_printable, server.addresses))}"
    if len(servers) > MAX_NAMED:
        yield f"so do {len(servers) - MAX_NAMED} more"


def describe_command(process: ListeningProcess) -> str:
    """Return the first words of a command line, with the names of files instead of their paths, without secrets."""
    words = process.words or (process.program,)
    shown = [word.rpartition("/")[2] if word.startswith("/") and " " not in word else word for word in words]
    text = redact(_printable(" ".join(shown[:_MAX_WORDS])))
    is_cut = len(words) > _MAX_WORDS or len(text) > _MAX_LENGTH
    return f"{text[:_MAX_LENGTH].rstrip()} …" if is_cut else text


def _printable(text: str) -> str:
    """Return a text that a board can store: arguments and paths may have any bytes."""
    line = " ".join(text.split()).replace("`", "'")
    return "".join(letter if letter.isprintable() else "?" for letter in line)
