"""Run the commands of a project with sources that fail, in the slot of a proof.

The failing sources are committed: a command that tests only uncommitted changes, or only the last commit, then behaves
as it does for a candidate. No ref names these commits.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from liza.config.rules import breakage, test_proof
from liza.config.rules.test_proof import GreenPart, ProofDetails
from liza.git import git_refs, leftovers
from liza.git.runner import Git
from liza.guards import shell_parser
from liza.guards.shell_parser import TreeNode
from liza.model.configuration import TESTS_GATE, Config, Gate, Network
from liza.model.paths import Paths
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import Preset
from liza.programs.session import log_file
from liza.project import commands
from liza.project.rules import command_parts, tree_changes
from liza.project.rules.command_parts import Connector, PartContext, Statement

_CHECKOUT_LIMIT = 600.0  # seconds for git to put the slot at another commit
_HASHED_BYTES = 8_000_000  # bytes of a generated file whose content is compared; of a larger one its size and time are
_CACHES = frozenset(
    ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".cache", ".yarn", ".gradle", ".m2")
)
_INSTALLED = frozenset(("node_modules", ".venv", "venv", "site-packages", "dist-packages"))


class ProofPlan(Value):
    """Plan of a proof: the project's commands, the files to copy, ``config.environment``, and the limit in seconds.

    ``is_full``: in a full checkout, not as sparse as the person's. Without a ``command`` only the set-up runs.
    ``gates``: further commands that must notice failing sources. ``runs``: the most runs with failing sources.
    ``hint`` is the command for the error that the tests test another checkout.
    ``may_drop_variables``: tests that are red with ``gate_environment`` run once without it. ``presets``: the tests run
    with a brief in the instructions files of these programs, and once without it if they are red. ``config``: has the
    settings of the boxes in which the commands run. ``compares_boxes``: red commands run once without a box.
    ``keeps_setup``: what the set-up left is kept for the next `init`, if the tests are red.
    """

    command: str
    setup: str | None = None
    copied_files: Sequence[str] = ()
    environment: str | None = None
    gate_environment: Mapping[str, str] = MappingProxyType({})
    is_full: bool = True
    gates: tuple[Gate, ...] = ()
    runs: int = 3
    limit: float = 1800
    hint: str = ""
    may_drop_variables: bool = False
    presets: tuple[Preset, ...] = ()
    config: Config = Config()
    compares_boxes: bool = False
    keeps_setup: bool = False


class ProofStep(Enum):
    """A command of the project that a proof runs."""

    SET_UP = "set-up"
    TESTS = "tests"
    BROKEN_SET_UP = "set-up with failing sources"
    BROKEN_TESTS = "tests with failing sources"


class ProofReport(Value):
    """Functions that are called before a step, and after it with its outcome. If ``end`` raises, the proof ends."""

    begin: Callable[[ProofStep], None] = lambda step: None
    end: Callable[[ProofStep, commands.CommandOutcome], None] = lambda step, outcome: None


NO_REPORT = ProofReport()


class ProofSlot(Value):
    """The slot of a proof: at ``commit``, with its ``tracked`` files and their modes as ``git ls-files -s`` lists them,
    and the ``texts`` of the commands and of the files that define what they do.
    """

    paths: Paths
    git: Git
    commit: str
    tracked: tuple[str, ...]
    definitions: Mapping[str, str]
    plan: ProofPlan
    logs: Path

    @property
    def path(self) -> Path:
        return self.git.directory

    @property
    def root(self) -> Path:
        return self.paths.root

    @property
    def names(self) -> tuple[str, ...]:
        """The tracked files."""
        return tuple(row.partition("\t")[2] for row in self.tracked)

    @property
    def texts(self) -> tuple[str, ...]:
        """The commands, and the texts of the files that define what they do."""
        gates = (gate.command for gate in self.plan.gates)
        return (self.plan.command, self.plan.setup or "", *gates, *self.definitions.values())

    def run_command(
        self,
        command: str,
        log: str,
        variables: Mapping[str, str] = MappingProxyType({}),
        limit: float | None = None,
        network: Network | None = None,
        written: Path | None = None,
    ) -> commands.CommandOutcome:
        """Run a command of the project in the slot. ``limit``: seconds; None: that of the plan. ``network``: None: as
        all commands. ``written``: a directory of Liza that the command writes. Raises OSError."""
        box = commands.open_box(self.paths, self.git, self.plan.config)
        if box is not None and network is not None:
            box = box.with_network(network)
        if box is not None and written is not None:
            box = box.with_writable(written)
        seconds = self.plan.limit if limit is None else limit
        return commands.run_command(
            command, self.path, self.logs / log, seconds, self.root, self.plan.environment, variables, box=box
        )

    def compare_box(
        self, outcome: commands.CommandOutcome, variables: Mapping[str, str] = MappingProxyType({})
    ) -> commands.CommandOutcome:
        """Return the outcome of a command, with whether one that failed in a box passes without a box. Raises OSError.

        Only for sources of the person: nothing that an agent wrote runs without a box.
        """
        is_boxed = self.plan.compares_boxes and commands.is_confined(self.plan.config)
        if outcome.passed or not is_boxed:
            return outcome
        log = outcome.log.with_stem(f"{outcome.log.stem}-outside")
        outside = commands.run_command(
            outcome.command, self.path, log, self.plan.limit, self.root, self.plan.environment, variables
        )
        return replace(outcome, passes_outside=outside.passed)


class PartRun(Value):
    """A test that ran with failing sources. ``status`` is None if it was ended at the time limit. ``lost``: whether a
    later statement decides the exit status of the command."""

    text: str
    status: int | None
    lost: bool
    output: str

    @property
    def is_red(self) -> bool:
        """Whether the command fails by this part."""
        return self.status != 0 and not self.lost


class WholeRun(Value):
    """Result of the runs in which all sources fail, as ``ProofObservation`` has it."""

    exit_status: int | None
    green: tuple[GreenPart, ...]


class BrokenRuns:
    """The runs of a proof with failing sources: at most ``plan.runs``.

    ``broken``: the failing texts of the sources. ``setup_builds``: whether the set-up was seen to read sources; from
    then on it runs again for each commit, as it will for candidates.
    """

    def __init__(
        self,
        slot: ProofSlot,
        broken: Mapping[str, str],
        variables: Mapping[str, str],
        report: ProofReport,
    ) -> None:
        self.slot, self.broken, self.variables, self.report = slot, broken, variables, report
        self.files_before = _untracked(slot.git)
        self.runs_left = slot.plan.runs
        self.setup_builds = False

    def break_all(self) -> WholeRun:
        """Make all sources fail, so that neither a linter nor a test can pass. Raises GitFailed, OSError."""
        self._check_out(self._commit({name: breakage.add_syntax_error(text) for name, text in self.broken.items()}))
        parts = self._run_commands()
        if self.slot.plan.setup:
            parts = self._examine_setup(parts)
        statuses = [part.status for part in parts]
        exit_status = None if None in statuses else int(any(part.is_red for part in parts))
        green = tuple(GreenPart(part.text, self._shape_of(part)) for part in parts if part.status == 0 or part.lost)
        return WholeRun(exit_status, tuple(dict.fromkeys(green)))

    def _examine_setup(self, parts: Sequence[PartRun]) -> tuple[PartRun, ...]:
        """Run the set-up on failing sources, and again the tests that stayed green; return the parts with the results.

        Here the sources can be parsed and fail when they run: else the set-up of compiled or bundled sources would fail
        instead of the tests.
        """
        before = self._generated_files()
        passed = self._run_setup()
        self.setup_builds = not passed or self._generated_files() != before
        if all(part.status != 0 for part in parts) or not self.runs_left:
            return tuple(parts)
        self._check_out(self._commit(self.broken))
        if not self._run_setup():
            self.setup_builds = True
            return tuple(replace(part, status=1 if part.status == 0 else part.status) for part in parts)
        again = self._run_commands()
        merged = [after if first.status == 0 else first for first, after in zip(parts, again, strict=True)]
        self.setup_builds |= any(first.status != part.status for first, part in zip(parts, merged, strict=True))
        return tuple(merged) if self.setup_builds else tuple(parts)

    def examine_range(self, details: ProofDetails, exit_status: int | None) -> ProofDetails:
        """Make one half of the sources fail at a time, and return the details with what the tests examine.

        ``exit_status``: that of the tests when all sources fail. The failing half is followed by a commit that touches
        the other half: tests of the last commit stay green. Raises GitFailed, OSError.
        """
        if command_parts.names_last_commit(self.slot.texts):
            return replace(details, reads_last_commit=True)
        halves = breakage.split_sources(tuple(self.broken))
        if exit_status != 1 or not halves.second:
            return details
        # A second commit would change the keys of a cache: it would hide that they leave out the failing half.
        is_cached = command_parts.uses_cache(self.slot.texts)
        unexamined: list[str] = []
        for half, other in ((halves.first, halves.second), (halves.second, halves.first)):
            parts = self._run_half(half, () if is_cached else other)
            if parts is None or any(part.is_red for part in parts):
                continue
            if not is_cached and (unexamined or command_parts.examines_changes(self.slot.texts)):
                # All sources together are red, and the other half alone is not.
                return replace(details, reads_last_commit=True)
            alone = None if is_cached else self._run_half(half, ())
            if alone is not None and any(part.is_red for part in alone):
                return replace(details, reads_last_commit=True)
            unexamined.append(self._describe_unexamined(half, other, parts))
        return replace(details, unexamined="; ".join(unexamined))

    def notices(self, names: Sequence[str]) -> bool | None:
        """Return whether a test is red when only these sources fail; None if no run is left.

        Raises GitFailed, OSError.
        """
        parts = self._run_half(names, ())
        return None if parts is None else any(part.is_red for part in parts)

    def _describe_unexamined(self, half: Sequence[str], other: Sequence[str], parts: Sequence[PartRun]) -> str:
        shapes = [command_parts.find_shape(PartContext("", output=part.output)) for part in parts]
        shape = next(filter(None, shapes), "")
        return breakage.describe_sources(half, other) + (f" ({shape})" if shape else "")

    def _run_half(self, half: Sequence[str], touched: Sequence[str]) -> tuple[PartRun, ...] | None:
        """Make one half fail, in one commit, then touch the other sources in a second one. None: no run is left."""
        if not self.runs_left:
            return None
        commit = self._commit({name: self.broken[name] for name in half})
        if touched:
            texts = git_refs.read_files(self.slot.git, self.slot.commit, touched)
            commit = self._commit({name: breakage.touch_source(name, text) for name, text in texts.items()}, commit)
        self._check_out(commit)
        if self.setup_builds and not self._run_setup():
            self.runs_left -= 1
            return (PartRun(self.slot.plan.setup or "", 1, False, ""),)
        return self._run_commands()

    def _commit(self, texts: Mapping[str, str], parent: str | None = None) -> str:
        return git_refs.commit_files(self.slot.git, parent or self.slot.commit, texts, breakage.BREAKAGE_MARK)

    def _check_out(self, commit: str) -> None:
        """Put the slot at a commit, without the new files of the tests."""
        git, path = self.slot.git, self.slot.path
        leftovers.loosen_permissions(path)
        git.with_timeout(_CHECKOUT_LIMIT).out("reset", "--quiet", "--hard", commit)
        self.remove_new_files()
        commands.update_git(self.slot.paths, git, self.slot.plan.config)

    def drop_variables(self, names: Iterable[str]) -> None:
        """Run the commands without these variables from now on."""
        self.variables = {name: value for name, value in self.variables.items() if name not in set(names)}

    def remove_new_files(self) -> None:
        """Remove the new files of the tests that git does not ignore: they alone could make the next run red."""
        git, path = self.slot.git, self.slot.path
        leftovers.loosen_permissions(path)
        for name in _untracked(git) - self.files_before:
            file = path / name
            if not file.is_dir() and file.parent.resolve() == path.resolve() / PurePosixPath(name).parent:
                file.unlink(missing_ok=True)

    def _run_setup(self) -> bool:
        self.report.begin(ProofStep.BROKEN_SET_UP)
        return self.slot.run_command(self.slot.plan.setup or "", "proof-setup.log").passed

    def _run_commands(self) -> tuple[PartRun, ...]:
        """Run each test of each command, whatever those before it returned."""
        self.runs_left -= 1
        self.report.begin(ProofStep.BROKEN_TESTS)
        tests = Gate(name=TESTS_GATE, command=self.slot.plan.command)
        gates = [
            gate
            for gate in (tests, *self.slot.plan.gates)
            if not gate.paths or any(tree_changes.matches(name, gate.paths) for name in self.broken)
        ]
        return tuple(part for gate in gates for part in self._run_gate(gate))

    def _run_gate(self, gate: Gate) -> tuple[PartRun, ...]:
        statements = split_statements(gate.command)
        tests = command_parts.test_positions(statements)
        if not tests:
            return ()
        own = "" if gate.name == TESTS_GATE else f"-{gate.name}"
        with tempfile.TemporaryDirectory(prefix="liza-parts-") as folder:
            record = Path(folder) / "statuses"
            script = command_parts.write_script(statements, str(record))
            log = f"proof-tests{own}.log"
            outcome = self.slot.run_command(
                script, log, self.variables, gate.timeout, gate.network, written=Path(folder)
            )
            statuses = command_parts.read_record(record.read_text() if record.is_file() else "")
        output = log_file.read_tail(outcome.log, 1 << 20)
        lost = command_parts.lost_statements(statements)
        return tuple(
            PartRun(
                statement.text,
                # A part that ends the shell, as a sourced script can, leaves its exit status to the script.
                statuses.get(number, outcome.exit_status),
                number in lost,
                command_parts.output_of_part(output, number),
            )
            for number, statement in enumerate(statements)
            if number in tests
        )

    def _shape_of(self, part: PartRun) -> str:
        texts = (part.text, *self.slot.definitions.values())
        is_dash = Path("/bin/sh").resolve().name != "bash"
        return command_parts.find_shape(PartContext(part.text, texts, part.output, part.lost, is_dash))

    def _generated_files(self) -> dict[str, str]:
        """Return digests of the files that git does not track, without caches and without installed dependencies."""
        names = self.slot.git.names("ls-files", "--others", "-z")
        return {name: _digest(self.slot.path / name) for name in names if self._is_generated(name)}

    def _is_generated(self, name: str) -> bool:
        parts = frozenset(PurePosixPath(name).parts)
        if parts & _CACHES:
            return False
        # Of what is installed, only a copy of the project counts.
        if not parts & _INSTALLED:
            return True
        suffixes = test_proof.installed_suffixes(self.broken, self.slot.names)
        return any(name.endswith(f"/{suffix}") for suffix in suffixes)


def _untracked(git: Git) -> frozenset[str]:
    return frozenset(git.names("ls-files", "--others", "--exclude-standard", "-z"))


def _digest(path: Path) -> str:
    """Return a digest of a file: of its content, of a large one of its size and time, of a link of its target."""
    try:
        status = path.lstat()
        if path.is_symlink():
            return str(path.readlink())
        if not path.is_file() or status.st_size > _HASHED_BYTES:
            return f"{status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"


_SIMPLE = frozenset(
    (
        "command",
        "test_command",
        "declaration_command",
        "unset_command",
        "variable_assignment",
        "variable_assignments",
        "function_definition",
    )
)


def split_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements that ``&&``, ``;`` and newlines separate; ``||``, pipes and compound commands stay whole.

    A text with a syntax error is one statement.
    """
    source = text.encode("utf-8", "surrogateescape")
    root = shell_parser.parse(source).root_node
    if root.has_error:
        return (Statement(text, (text,), Connector.END),)
    statements: list[Statement] = []
    for child in root.children:
        if child.type == "&" and statements:
            _join_background(statements, source)
        elif child.is_named and child.type != "comment":
            if statements and statements[-1].connector is Connector.END:
                statements[-1] = statements[-1].followed_by(Connector.SEQUENCE)
            statements += _split(child, source, child.end_byte)
    return tuple(statements)


def _join_background(statements: list[Statement], source: bytes) -> None:
    """Make the last list of statements, all that ``&&`` joins, one background command."""
    start = len(statements) - 1
    while start and statements[start - 1].connector is Connector.AND:
        start -= 1
    joined = statements[start:]
    commands = tuple(command for statement in joined for command in statement.commands)
    text = " && ".join(statement.text for statement in joined)
    statements[start:] = [Statement(f"{text} &", commands, Connector.END, is_background=True)]


def _split(node: TreeNode, source: bytes, end: int) -> list[Statement]:
    """Split a node. ``end``: byte at which its last statement ends, with the redirections that follow it."""
    inner = node
    if node.type == "redirected_statement" and (body := node.child_by_field_name("body")) is not None:
        inner = body
    if inner.type == "list" and any(child.type == "&&" for child in inner.children):
        left, right = inner.named_children[0], inner.named_children[-1]
        before = _split(left, source, left.end_byte)
        return [*before[:-1], before[-1].followed_by(Connector.AND), *_split(right, source, end)]
    text = source[node.start_byte : end].decode("utf-8", "surrogateescape")
    return [Statement(text, tuple(_commands(node, source)), Connector.END)]


def _commands(node: TreeNode, source: bytes) -> Iterator[str]:
    """Yield the simple commands in a node, without those in substitutions."""
    if node.type in _SIMPLE:
        yield source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
        return
    for child in node.named_children:
        yield from _commands(child, source)
