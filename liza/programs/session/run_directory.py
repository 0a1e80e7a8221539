"""The directory of a run: what was asked, what the program was told, how far it came, how it ended.

``.liza/run/<agent>/<run>/`` is written whole files at a time, so that whoever watches it sees all of a fact or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from liza.rules.errors import LizaError, NotRegularFile, Refused, UsageError
from liza.rules.model import AwareDatetime, FrozenStruct, SupervisorExit
from liza.rules.paths import Paths, agent_of, run_number
from liza.rules.sessions.spending import TokenUsage
from liza.system import atomic

CLOSING_CODES = ("0", "1", "42")
POSTPONED_LIMIT = timedelta(minutes=1)
HOOK_CALLS_FILE = "calls.jsonl"
"""The file in a run's directory with a line for each tool call that a hook told of."""
T = TypeVar("T")


class RunRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``run.json``: what the run is for. ``kind`` is work, review or planning; ``task`` is None for planning; ``spec``
    is the program as it was asked for, with its command."""

    agent: str
    run: str
    kind: str
    started: AwareDatetime
    task: str | None = None
    program: str = ""
    spec: str | None = None
    worktree: str = ""
    commit: str | None = None


class Sentinel(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``ready``: this run has read its brief, and what showed it."""

    time: AwareDatetime
    evidence: str


class StopNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``stopped``: somebody ended the session on purpose, so that its end is no crash.

    ``unusable``: because its program waits for a person, and so would the next one. ``model`` is the kind of failure
    where its model gave no answer.
    """

    time: AwareDatetime
    reason: str
    unusable: bool = False
    model: str = ""


class PostponedVerb(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``held-up``: the board, its lock or the disk kept ``verb`` of this run from being carried out, and nothing that
    was said since shows that the program went on."""

    time: AwareDatetime
    verb: str
    reason: str


class ModelNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``model.json``: why the living session gets no answer from its model, with ``kind`` and ``words`` as in
    ``rules.sessions.model_silence``; ``ends`` is when the session is ended unless an answer comes. ``retried``: until then the
    program tries again by itself."""

    kind: str
    since: AwareDatetime
    ends: AwareDatetime
    words: str = ""
    retried: bool = False


class Turn(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``turn.json``: what the program's own hooks said last. ``phase`` is started, busy, idle or stopped; ``tools`` how
    many of its tools were about to run; ``session`` the program's own id of the conversation; ``pushes`` how often it
    was made to go on instead of ending its turn, since a person or Liza last began one."""

    time: AwareDatetime
    phase: str
    tools: int = 0
    session: str | None = None
    pushes: int = 0


class Gauge(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``gauge.json``: what the supervisor measured last in a living session. ``stuck``: why it makes no progress;
    ``unmeasured``: why its calls and tokens cannot be measured."""

    calls: int = 0
    used: TokenUsage | None = None
    stuck: str | None = None
    unmeasured: str | None = None


class BriefLocation(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``brief.json``: where the block stands, relative to the worktree; ``created`` if no file was there before."""

    file: str
    created: bool = False


class RunDir:
    """One run's directory. Reading what is not there yet gives None; what is there and unreadable raises."""

    def __init__(self, paths: Paths, run: str) -> None:
        self.paths = paths
        self.run = run
        self.agent = agent_of(run)
        self.path = paths.run(run)

    def create(self, record: RunRecord) -> None:
        """Make the directory, for this user's eyes only, with its record. Repeatable."""
        _make_directories(self.paths.root, self.path.parent.parent, self.path.parent, self.path)
        self._put("run.json", record)

    def exists(self) -> bool:
        """Whether the run has a directory."""
        return self.path.is_dir()

    def read_record(self) -> RunRecord | None:
        """What the run is for; None also where it is another run's record that lies here."""
        found = self._get("run.json", RunRecord)
        return found if found is not None and (found.run, found.agent) == (self.run, self.agent) else None

    def mark_concluded(self, came: str) -> None:
        """Keep that the end of the session was told, and what came of it. Raises OSError."""
        atomic.write(self.path / "settled", f"{came}\n".encode())

    def is_concluded(self) -> bool:
        """Whether the end of the session was told. An agent can write that, too: of one that lives it means nothing."""
        return (self.path / "settled").exists()

    def mark_ready(self, now: AwareDatetime, evidence: str) -> bool:
        """Leave the sentinel; the first one stays. Whether this was the first."""
        return atomic.write_if_absent(self.path / "ready", msgspec.json.encode(Sentinel(time=now, evidence=evidence)))

    def is_ready(self) -> bool:
        """Whether the run has read its brief."""
        return self.read_sentinel() is not None

    def read_sentinel(self) -> Sentinel | None:
        """The sentinel."""
        return self._get("ready", Sentinel)

    def ready_time(self) -> AwareDatetime | None:
        """When the sentinel was left."""
        found = self.read_sentinel()
        return found.time if found else None

    def set_closing_code(self, word: str) -> None:
        """Leave the closing word, which outranks the exit code: 0 go on, 1 failed, 42 start again. Raises Usage."""
        if word not in CLOSING_CODES:
            raise UsageError(f"{word!r} is not a closing word: 0 (done), 1 (failed) or 42 (start again)", "liza exit 0")
        atomic.write(self.path / "word", f"{word}\n".encode())

    def closing_code(self) -> str | None:
        """The closing word, 0, 1 or 42. Raises LizaError for anything else."""
        found = atomic.read_if_exists(self.path / "word")
        if found is None:
            return None
        word = found.decode(errors="replace").strip()
        if word not in CLOSING_CODES:
            raise LizaError(f"{self.path / 'word'} holds {word!r}, wanted 0, 1 or 42", f"rm {self.path / 'word'}")
        return word

    def write_stop(self, now: AwareDatetime, reason: str, unusable: bool = False, model: str = "") -> None:
        """Say, before the session is ended, that it is ended on purpose."""
        self._put("stopped", StopNote(time=now, reason=reason, unusable=unusable, model=model))

    def read_stop(self) -> StopNote | None:
        """Why the session was ended on purpose."""
        return self._get("stopped", StopNote)

    def write_turn(self, turn: Turn) -> None:
        """Keep where the program's turn stands. Raises OSError."""
        self._put("turn.json", turn)

    def read_turn(self) -> Turn | None:
        """Where the program's turn stands, as its hooks said; None where none of them spoke."""
        return self._get("turn.json", Turn)

    def read_activity(self) -> tuple[bool, int]:
        """Return whether the run said a verb, and how many tools it used: both need a model that answers."""
        sentinel, turn = self.read_sentinel(), self.read_turn()
        return sentinel is not None and sentinel.evidence == "liza ready", turn.tools if turn else 0

    def write_model_note(self, note: ModelNote | None) -> None:
        """Keep why the session gets no answer from its model; None: it gets answers. Raises OSError."""
        if note is None:
            (self.path / "model.json").unlink(missing_ok=True)
        else:
            self._put("model.json", note)

    def read_model_note(self) -> ModelNote | None:
        """Return why the session gets no answer, as far as a person was told of it."""
        return self._get("model.json", ModelNote)

    def write_gauge(self, gauge: Gauge) -> None:
        """Keep what was measured. Raises OSError."""
        self._put("gauge.json", gauge)

    def read_gauge(self) -> Gauge | None:
        """What was measured last; None before the first time, or where it cannot be read: it is for show alone."""
        try:
            return self._get("gauge.json", Gauge)
        except LizaError:
            return None

    def write_question(self, question: str | None) -> None:
        """Keep what its program asks a person at its terminal; None: it asks no more. Raises OSError."""
        if question is None:
            (self.path / "asks").unlink(missing_ok=True)
        else:
            atomic.write(self.path / "asks", question.encode("utf-8", "replace"))

    def read_question(self) -> str | None:
        """What its program asks a person, as far as a person was told of it."""
        found = atomic.read_if_exists(self.path / "asks")
        return None if found is None else found.decode(errors="replace")

    def write_postponed(self, now: AwareDatetime, verb: str, reason: str) -> None:
        """Keep that ``verb`` could not be carried out. Raises OSError where the run has no directory or the disk is
        full, Refused where a link would lead elsewhere."""
        for directory in (self.path.parent.parent, self.path.parent, self.path):
            _refuse_link(directory)
        self._put("held-up", PostponedVerb(time=now, verb=verb, reason=reason))

    def read_postponed(self) -> PostponedVerb | None:
        """The newest verb that could not be carried out, while that may be why the program ended."""
        return self._get("held-up", PostponedVerb)

    def clear_postponed(self, now: AwareDatetime, verb: str) -> None:
        """``verb`` was carried out: it is what could not be, or that was so long ago that the program did not end of
        it."""
        found = self.read_postponed()
        if found is not None and (found.verb == verb or now - found.time > POSTPONED_LIMIT):
            (self.path / "held-up").unlink(missing_ok=True)

    def write_brief(self, assignment: str, beacon: dict[str, str], prompt: str, block: str) -> None:
        """assignment.md, beacon.json, prompt and the block as it was composed, for ``liza ready`` to print again."""
        for name, text in (("assignment.md", assignment), ("prompt", prompt), ("block.md", block)):
            atomic.write(self.path / name, text.encode())
        self._put("beacon.json", beacon)

    @property
    def assignment_path(self) -> Path:
        """Where the whole assignment lies."""
        return self.path / "assignment.md"

    def read_block(self) -> str | None:
        """The brief as the instructions file was to hold it."""
        found = atomic.read_if_exists(self.path / "block.md")
        return None if found is None else found.decode()

    def read_prompt(self) -> str | None:
        """The few words that say where the whole assignment lies."""
        found = atomic.read_if_exists(self.path / "prompt")
        return None if found is None else found.decode()

    def write_brief_location(self, written: BriefLocation) -> None:
        """Keep where the block is about to be written."""
        self._put("brief.json", written)

    def read_brief_location(self) -> BriefLocation | None:
        """Where the block was written."""
        return self._get("brief.json", BriefLocation)

    def other_runs(self) -> Iterator[RunDir]:
        """The other runs of this crew that have a directory, whoever's they are."""
        for directory in sorted(self.path.parent.parent.glob("*/*")):
            if directory != self.path and (directory / "run.json").is_file():
                yield RunDir(self.paths, directory.name)

    @property
    def output_path(self) -> Path:
        """Where the program's output goes."""
        return self.path / "output.log"

    @property
    def screen_path(self) -> Path:
        """What its terminal showed last, where it had one."""
        return self.path / "screen.txt"

    def write_screen(self, text: str) -> None:
        """Keep what its terminal showed last. Raises OSError."""
        atomic.write(self.screen_path, text.encode())

    def last_output(self, size: int = 8000) -> str:
        """The end of what it said, as a person saw it: of its terminal's screen, or of its output; empty where neither
        can be read."""
        try:
            shown = atomic.read_if_exists(self.screen_path)
        except (NotRegularFile, OSError):
            shown = None
        return self.output_tail(size) if shown is None else shown.decode(errors="replace")[-size:]

    def output_tail(self, size: int = 4096) -> str:
        """The last ``size`` bytes that the program said; empty while it said nothing, and where that cannot be read:
        ``unreadable`` says why."""
        try:
            with atomic.open_regular(self.output_path) as file:
                file.seek(max(0, file.seek(0, 2) - size))
                return file.read(size).decode(errors="replace")
        except (OSError, NotRegularFile):
            return ""

    def unreadable(self) -> str | None:
        """Why its output cannot be read; None where it can be, or is not there."""
        try:
            with atomic.open_regular(self.output_path) as file:
                file.seek(0, 2)
                file.read(1)
        except FileNotFoundError:
            return None
        except (OSError, NotRegularFile) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            return f"{self.output_path} cannot be read: {why}"
        return None

    def last_output_time(self) -> float | None:
        """When the program last said something, in seconds since the epoch; None before its first output, and where
        that cannot be told."""
        try:
            status = self.output_path.stat()
        except OSError:
            return None
        return status.st_mtime if status.st_size else None

    def _put(self, name: str, value: object) -> None:
        atomic.write(self.path / name, msgspec.json.encode(value) + b"\n")

    def _get(self, name: str, kind: type[T]) -> T | None:
        return read_struct(self.path / name, kind)


def read_struct(path: Path, kind: type[T]) -> T | None:
    """The fact in ``path``, None where there is none. Raises LizaError when it is there and cannot be read."""
    found = atomic.read_if_exists(path)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise LizaError(f"{path} cannot be read: {error}", f"cat {path}") from error


def _make_directories(root: Path, *directories: Path) -> None:
    for directory in directories:
        atomic.make_directory(root, directory)
        _refuse_link(directory)


def _refuse_link(directory: Path) -> None:
    if directory.is_symlink():
        raise Refused(f"{directory} is a link, and a run's files are written in the crew's own", f"rm {directory}")


def write_supervisor_exit(paths: Paths, agent: str, left: SupervisorExit) -> None:
    """Keep beside the agent's runs why its supervisor left. Raises OSError, Refused."""
    place = _supervisor_exit_path(paths, agent)
    _make_directories(paths.root, place.parent.parent, place.parent)
    atomic.write(place, msgspec.json.encode(left) + b"\n")


def read_supervisor_exit(paths: Paths, agent: str) -> SupervisorExit | None:
    """Why the last supervisor of this agent left; None where it was asked to, or one is there again. Raises LizaError
    where the file cannot be read."""
    return read_struct(_supervisor_exit_path(paths, agent), SupervisorExit)


def clear_supervisor_exit(paths: Paths, agent: str) -> None:
    """A supervisor of this agent is there again. Raises OSError."""
    _supervisor_exit_path(paths, agent).unlink(missing_ok=True)


def _supervisor_exit_path(paths: Paths, agent: str) -> Path:
    return paths.runs / agent / "left.json"


class UsageWait(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``waits.json``: a limit of use keeps the agent's program from its work; ``until`` where that was said."""

    reason: str
    until: AwareDatetime


def write_usage_wait(paths: Paths, agent: str, waits: UsageWait | None) -> None:
    """Keep beside the agent's runs what it waits for; None: it waits no more. Raises OSError, Refused."""
    place = paths.runs / agent / "waits.json"
    if waits is None:
        place.unlink(missing_ok=True)
        return
    _make_directories(paths.root, place.parent.parent, place.parent)
    atomic.write(place, msgspec.json.encode(waits) + b"\n")


def read_usage_wait(paths: Paths, agent: str) -> UsageWait | None:
    """What the agent waits for, if that is not over. Raises LizaError where the file cannot be read."""
    return read_struct(paths.runs / agent / "waits.json", UsageWait)


def list_runs(paths: Paths, agent: str) -> tuple[str, ...]:
    """The runs of an agent that have a directory, oldest first."""
    try:
        names = [entry.name for entry in (paths.runs / agent).iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return ()
    numbered = {name: number for name in names if (number := run_number(name, agent)) is not None}
    return tuple(sorted(numbered, key=numbered.__getitem__))
