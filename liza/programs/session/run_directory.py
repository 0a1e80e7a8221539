"""The directory of a run: what was asked, what the program was told, how far it came, how it ended.

Each file in ``.liza/run/<agent>/<run>/`` is replaced atomically: a reader sees a complete record or none. The records
themselves are in `run_records`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from liza.model.errors import LizaError, NotRegularFile, Refused, UsageError
from liza.model.model import SupervisorExit
from liza.model.paths import Paths, agent_of, run_number
from liza.model.session_ends import STOP_RULES, SessionOutcome, StopReason
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import AwareDatetime, FrozenStruct, decodable
from liza.programs.rules.lifecycle_rules import HealthStatus, WorkerState
from liza.programs.session.run_records import BriefLocation as BriefLocation
from liza.programs.session.run_records import Gauge as Gauge
from liza.programs.session.run_records import ModelNote as ModelNote
from liza.programs.session.run_records import PostponedVerb as PostponedVerb
from liza.programs.session.run_records import ReadyEvidence as ReadyEvidence
from liza.programs.session.run_records import RunRecord as RunRecord
from liza.programs.session.run_records import Sentinel as Sentinel
from liza.programs.session.run_records import StopNote as StopNote
from liza.programs.session.run_records import Turn as Turn
from liza.programs.session.run_records import TurnSource as TurnSource
from liza.system import atomic, untrusted_files

CLOSING_CODES = ("0", "1", "42")
POSTPONED_LIMIT = timedelta(minutes=1)
RUN_FILE = "run.json"
CLOSING_FILE = "word"
PANE_FILE = "pane.json"
"""File in a run's directory that names its tmux pane, if it has one."""
HOOK_CALLS_FILE = "calls.jsonl"
"""File in a run's directory with one line per tool call that a hook reported."""
COMPACTED_FILE = "compacted"
"""File in a run's directory: its conversation was shortened, and the model has not got the brief again."""
CONVERSATION_FILE = "conversation"
"""File in a run's directory: the id of the program's conversation, as a command of the session found it."""
SIDECAR_FILE = "sidecar.json"
"""File in a run's directory with what its sidecar starts. Only a session over ACP has one."""
T = TypeVar("T")


class RunDir:
    """One run's directory. A read method returns None if the file is missing, and raises if it is unreadable."""

    def __init__(self, paths: Paths, run: str) -> None:
        self.paths = paths
        self.run = run
        self.agent = agent_of(run)
        self.path = paths.run(run)

    def create(self, record: RunRecord) -> None:
        """Create the directory with its record, accessible to this user only. Idempotent."""
        _make_directories(self.paths.root, self.path.parent.parent, self.path.parent, self.path)
        self._put(RUN_FILE, record)

    def exists(self) -> bool:
        """Whether the run has a directory."""
        return self.path.is_dir()

    def read_record(self) -> RunRecord | None:
        """Return what the run is for; None if there is no record or it belongs to another run."""
        record = self._get(RUN_FILE, RunRecord)
        return record if record is not None and (record.run, record.agent) == (self.run, self.agent) else None

    def mark_concluded(self, outcome: str) -> None:
        """Record that the end of the session was handled, with its outcome. Raises OSError."""
        atomic.write(self.path / "settled", f"{outcome}\n".encode())

    def is_concluded(self) -> bool:
        """Return whether the end of the session was handled. An agent can forge the file: ignore it for a running
        session."""
        return (self.path / "settled").exists()

    def read_outcome(self) -> SessionOutcome | None:
        """Return how the session ended, if that was handled. An agent can forge it: use it only for texts."""
        data = untrusted_files.read_if_exists(self.path / "settled")
        word = (data or b"").decode(errors="replace").partition(":")[0].strip()
        return SessionOutcome(word) if word in [*SessionOutcome] else None

    def has_sidecar(self) -> bool:
        """Return whether the session is driven over ACP."""
        return (self.path / SIDECAR_FILE).exists()

    def mark_ready(self, now: AwareDatetime, evidence: str) -> bool:
        """Write the ready file unless it exists. Return whether this call wrote it."""
        return atomic.write_if_absent(self.path / "ready", msgspec.json.encode(Sentinel(time=now, evidence=evidence)))

    def note_conversation(self, environ: Mapping[str, str]) -> None:
        """Record the id of the conversation from the program's variable in ``environ``, if it has one. Raises OSError,
        LizaError."""
        record = self.read_record()
        conversation = environ.get(record.session_id_env) if record is not None and record.session_id_env else None
        if conversation:
            atomic.write(self.path / CONVERSATION_FILE, conversation.encode())

    def read_conversation(self) -> str | None:
        """Return the id that ``note_conversation`` recorded. An agent can forge it. Raises NotRegularFile, OSError."""
        data = untrusted_files.read_if_exists(self.path / CONVERSATION_FILE)
        return data.decode(errors="replace").strip() or None if data else None

    def is_ready(self) -> bool:
        """Return whether the run has read its brief."""
        return self.read_sentinel() is not None

    def record_time(self) -> float | None:
        """Return when the record was written, in seconds since the epoch; None without one. An agent can change it."""
        return _written_at(self.path / RUN_FILE)

    def ready_time(self) -> float | None:
        """Return when the ready record was written, in seconds since the epoch; None without one.

        The time in the record has whole seconds.
        """
        return _written_at(self.path / "ready")

    def read_sentinel(self) -> Sentinel | None:
        """Return the ready record."""
        return self._get("ready", Sentinel)

    def set_closing_code(self, word: str) -> None:
        """Record the closing code, which outranks the exit code: 0 done, 1 failed, 42 restart. Raises UsageError."""
        if word not in CLOSING_CODES:
            raise UsageError(f"{word!r} is not a closing code: 0 (done), 1 (failed) or 42 (start again)", "liza exit 0")
        atomic.write(self.path / CLOSING_FILE, f"{word}\n".encode())

    def closing_code(self) -> str | None:
        """Return the closing code: 0, 1, 42, or None. Raises LizaError for any other content."""
        data = untrusted_files.read_if_exists(self.path / CLOSING_FILE)
        if data is None:
            return None
        code = data.decode(errors="replace").strip()
        if code not in CLOSING_CODES:
            raise LizaError(f"{self.path / 'word'} holds {code!r}, wanted 0, 1 or 42", f"rm {self.path / 'word'}")
        return code

    def write_stop(self, now: AwareDatetime, reason: StopReason, sentence: str = "") -> None:
        """Record that Liza ends the session, and why. Call it before ending the session, so that its end is no crash.

        ``sentence``: the reason for people; empty: the one of ``reason``.
        """
        self._put("stopped", StopNote(time=now, reason=sentence or STOP_RULES[reason].sentence, kind=reason))

    def read_stop(self) -> StopNote | None:
        """Return why the session was ended on purpose."""
        return self._get("stopped", StopNote)

    def write_turn(self, turn: Turn) -> None:
        """Record the state of the program's turn. Raises OSError."""
        self._put("turn.json", turn)

    def read_turn(self) -> Turn | None:
        """Return the state of the program's turn as its hooks or its runtime reported it; None without a report."""
        return self._get("turn.json", Turn)

    def read_activity(self) -> tuple[bool, int]:
        """Return whether the run called a verb, and how many tools it used: both need a model that answers."""
        sentinel, turn = self.read_sentinel(), self.read_turn()
        return sentinel is not None and sentinel.evidence == ReadyEvidence.LIZA_READY, turn.tools if turn else 0

    def write_model_note(self, note: ModelNote | None) -> None:
        """Record why the session gets no answer from its model; None: it gets answers. Raises OSError."""
        if note is None:
            (self.path / "model.json").unlink(missing_ok=True)
        else:
            self._put("model.json", note)

    def read_model_note(self) -> ModelNote | None:
        """Return why the session gets no answer, if a person was told of it."""
        return self._get("model.json", ModelNote)

    def write_gauge(self, gauge: Gauge) -> None:
        """Record measurements. Raises OSError."""
        self._put("gauge.json", gauge)

    def read_gauge(self) -> Gauge | None:
        """Return the last measurements; None without readable ones. They are only displayed."""
        try:
            return self._get("gauge.json", Gauge)
        except LizaError:
            return None

    def mark_compacted(self) -> None:
        """Record that the conversation is shortened by an event that cannot carry the brief. Raises OSError."""
        atomic.write(self.path / COMPACTED_FILE, b"")

    def is_compacted(self) -> bool:
        """Return whether the model has to get the brief again."""
        return (self.path / COMPACTED_FILE).exists()

    def unmark_compacted(self) -> None:
        """Record that the model has got the brief again. Raises OSError."""
        (self.path / COMPACTED_FILE).unlink(missing_ok=True)

    def write_question(self, question: str | None) -> None:
        """Record what the program asks a person at its terminal; None: it asks nothing now. Raises OSError."""
        if question is None:
            (self.path / "asks").unlink(missing_ok=True)
        else:
            atomic.write(self.path / "asks", question.encode("utf-8", "replace"))

    def read_question(self) -> str | None:
        """Return what the program asks a person, if a person was told of it."""
        data = untrusted_files.read_if_exists(self.path / "asks")
        return None if data is None else data.decode(errors="replace")

    def write_postponed(self, now: AwareDatetime, verb: str, reason: str) -> None:
        """Record that ``verb`` could not be carried out.

        Raises OSError if the run has no directory or the disk is full, Refused if a directory on the path is a symbolic
        link.
        """
        for directory in (self.path.parent.parent, self.path.parent, self.path):
            _refuse_link(directory)
        self._put("held-up", PostponedVerb(time=now, verb=verb, reason=reason))

    def read_postponed(self) -> PostponedVerb | None:
        """Return the last verb that could not be carried out, as long as this may explain the end of the program."""
        return self._get("held-up", PostponedVerb)

    def clear_postponed(self, now: AwareDatetime, verb: str) -> None:
        """Remove the record of a postponed verb if ``verb`` is that verb, or the record is older than POSTPONED_LIMIT.

        After that time the postponed verb is no explanation for the end of the program.
        """
        postponed = self.read_postponed()
        if postponed is not None and (postponed.verb == verb or now - postponed.time > POSTPONED_LIMIT):
            (self.path / "held-up").unlink(missing_ok=True)

    def write_brief(
        self, assignment: str, beacon: dict[str, str], prompt: str, block: str, quoted: Sequence[str] = ()
    ) -> None:
        """Write assignment.md, beacon.json, prompt, the block as composed, and the ids of the messages in it;
        ``liza ready`` prints them again."""
        ids = "".join(f"{name}\n" for name in quoted)
        for name, text in (("assignment.md", assignment), ("prompt", prompt), ("block.md", block), ("quoted", ids)):
            atomic.write(self.path / name, text.encode())
        self._put("beacon.json", beacon)

    def read_topic(self) -> str | None:
        """Return why the session exists, as its beacon names it, such as ``hand-off:invoice-model``."""
        beacon = self._get("beacon.json", dict[str, str])
        return beacon.get("topic") if beacon is not None else None

    @property
    def assignment_path(self) -> Path:
        """Path of the full assignment."""
        return self.path / "assignment.md"

    def read_block(self) -> str | None:
        """Return the brief as the instructions file was to hold it."""
        data = untrusted_files.read_if_exists(self.path / "block.md")
        return None if data is None else data.decode()

    def read_quoted(self) -> tuple[str, ...]:
        """Return the ids of the messages that the brief quotes; none without a brief. Raises OSError,
        NotRegularFile."""
        data = untrusted_files.read_if_exists(self.path / "quoted") or b""
        return tuple(data.decode(errors="replace").split())

    def read_prompt(self) -> str | None:
        """Return the short prompt that names the path of the full assignment."""
        data = untrusted_files.read_if_exists(self.path / "prompt")
        return None if data is None else data.decode()

    def write_brief_location(self, location: BriefLocation) -> None:
        """Record where the block is about to be written. Written first, so that a crash leaves no unknown block."""
        self._put("brief.json", location)

    def read_brief_location(self) -> BriefLocation | None:
        """Return where the block was written."""
        return self._get("brief.json", BriefLocation)

    def block_key(self) -> str:
        """Return the random word in the marks of this run's blocks; chosen at the first call. Raises NotRegularFile,
        OSError."""
        path = self.path / "block-key"
        data = untrusted_files.read_if_exists(path)
        if data is None:
            data = os.urandom(8).hex().encode()
            atomic.write(path, data)
        return data.decode("ascii", "replace")

    def find_block_keys(self, text: bytes) -> tuple[str, ...]:
        """Return the keys of the blocks in ``text``: of this run, and of earlier ones that left theirs. Raises
        NotRegularFile, OSError."""
        earlier = self.other_runs() if b"liza:begin" in text else ()
        return tuple(run.block_key() for run in (self, *earlier) if run is self or (run.path / "block-key").exists())

    def other_runs(self) -> Iterator[RunDir]:
        """Yield the other runs of this crew that have a directory, of any agent."""
        for directory in sorted(self.path.parent.parent.glob("*/*")):
            if directory != self.path and (directory / RUN_FILE).is_file():
                yield RunDir(self.paths, directory.name)

    @property
    def output_path(self) -> Path:
        """Path of the program's output."""
        return self.path / "output.log"

    @property
    def screen_path(self) -> Path:
        """Path of the last contents of its terminal's screen, if it had a terminal."""
        return self.path / "screen.txt"

    def write_screen(self, text: str) -> None:
        """Record the last contents of its terminal's screen. Raises OSError."""
        atomic.write(self.screen_path, text.encode())

    def last_output(self, size: int = 8000) -> str:
        """Return the end of the screen, or of the output if there is no screen, at most ``size``; empty if neither
        can be read."""
        try:
            screen = untrusted_files.read_if_exists(self.screen_path)
        except (NotRegularFile, OSError):
            screen = None
        return self.output_tail(size) if screen is None else screen.decode(errors="replace")[-size:]

    def output_tail(self, size: int = 4096) -> str:
        """Return the last ``size`` bytes of output; empty without readable output: see ``unreadable``."""
        try:
            with untrusted_files.open_to_read(self.output_path) as file:
                file.seek(max(0, file.seek(0, 2) - size))
                return file.read(size).decode(errors="replace")
        except (OSError, NotRegularFile):
            return ""

    def unreadable(self) -> str | None:
        """Return why the output cannot be read; None if it can be read or does not exist."""
        try:
            with untrusted_files.open_to_read(self.output_path) as file:
                file.seek(0, 2)
                file.read(1)
        except FileNotFoundError:
            return None
        except (OSError, NotRegularFile) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            return f"{self.output_path} cannot be read: {reason}"
        return None

    def last_output_time(self) -> float | None:
        """Return the time of the last output in seconds since the epoch; None if there is no output or it cannot be
        read."""
        return _written_at(self.output_path)

    def note_report(self) -> None:
        """Record that the run has called a command or the worker API. Raises NotRegularFile, OSError."""
        descriptor = untrusted_files.open_regular(self.path / "reported", os.O_WRONLY | os.O_CREAT)
        try:
            os.utime(descriptor)
        finally:
            os.close(descriptor)

    def last_report_time(self) -> float | None:
        """Return when the run last called a command or the worker API, in seconds since the epoch; None if never."""
        try:
            return (self.path / "reported").lstat().st_mtime
        except OSError:
            return None

    def _put(self, name: str, value: object) -> None:
        atomic.write(self.path / name, msgspec.json.encode(value) + b"\n")

    def _get(self, name: str, kind: type[T]) -> T | None:
        return read_struct(self.path / name, kind)


def _written_at(path: Path) -> float | None:
    """Return when a file was written last; None if it is empty or cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime if status.st_size else None


def read_struct(path: Path, kind: type[T]) -> T | None:
    """Decode the record in ``path``; None if it does not exist. Raises LizaError if it cannot be read or decoded."""
    data = untrusted_files.read_if_exists(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=decodable(kind))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise LizaError(f"{path} cannot be read: {describe_decode_error(error, kind)}", f"cat {path}") from error


def _make_directories(root: Path, *directories: Path) -> None:
    for directory in directories:
        atomic.make_directory(root, directory)
        _refuse_link(directory)


def _refuse_link(directory: Path) -> None:
    if directory.is_symlink():
        raise Refused(f"{directory} is a link; a run's files are written only below the crew's root", f"rm {directory}")


def write_supervisor_exit(paths: Paths, agent: str, left: SupervisorExit) -> None:
    """Record beside the agent's runs why its supervisor exited. Raises OSError, Refused."""
    path = _supervisor_exit_path(paths, agent)
    _make_directories(paths.root, path.parent.parent, path.parent)
    atomic.write(path, msgspec.json.encode(left) + b"\n")


def read_supervisor_exit(paths: Paths, agent: str) -> SupervisorExit | None:
    """Return why the agent's last supervisor exited; None if it was asked to, or a new one runs.

    Raises LizaError if the file cannot be read.
    """
    return read_struct(_supervisor_exit_path(paths, agent), SupervisorExit)


def clear_supervisor_exit(paths: Paths, agent: str) -> None:
    """Remove the exit record: a supervisor of this agent runs again. Raises OSError."""
    _supervisor_exit_path(paths, agent).unlink(missing_ok=True)


def _supervisor_exit_path(paths: Paths, agent: str) -> Path:
    return paths.runs / agent / "left.json"


class AgentWait(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``waits.json``: what keeps the agent from its work until ``until``, such as a usage limit of its program, or a
    failed step that its supervisor tries again."""

    reason: str
    until: AwareDatetime


def write_wait(paths: Paths, agent: str, waits: AgentWait | None) -> None:
    """Record beside the agent's runs what it waits for; None: it waits no more. Raises OSError, Refused."""
    path = paths.runs / agent / "waits.json"
    if waits is None:
        path.unlink(missing_ok=True)
        return
    _make_directories(paths.root, path.parent.parent, path.parent)
    atomic.write(path, msgspec.json.encode(waits) + b"\n")


def read_wait(paths: Paths, agent: str) -> AgentWait | None:
    """Return what the agent waits for, or None. Raises LizaError if the file cannot be read."""
    return read_struct(paths.runs / agent / "waits.json", AgentWait)


def list_runs(paths: Paths, agent: str) -> tuple[str, ...]:
    """Return the runs of an agent that have a directory, oldest first. Links are left out: they may lead elsewhere."""
    directory = paths.runs / agent
    try:
        entries = () if directory.is_symlink() else directory.iterdir()
        names = [entry.name for entry in entries if entry.is_dir() and not entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    numbered = {name: number for name in names if (number := run_number(name, agent)) is not None}
    return tuple(sorted(numbered, key=numbered.__getitem__))


class SetupNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``setup.json`` beside an agent's runs: the set-up for ``run`` began at ``started``."""

    run: str
    started: AwareDatetime


def write_setup_note(paths: Paths, setup: SetupNote) -> None:
    """Record that a set-up runs. Raises OSError, Refused."""
    directory = paths.runs / agent_of(setup.run)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(directory / "setup.json", msgspec.json.encode(setup) + b"\n")


def remove_setup_note(paths: Paths, agent: str) -> None:
    """Remove the record: the set-up is over. Raises OSError."""
    (paths.runs / agent / "setup.json").unlink(missing_ok=True)


def read_setup_note(paths: Paths, run: str) -> SetupNote | None:
    """Return the set-up that runs for ``run``, or was interrupted. Raises LizaError if the record cannot be read."""
    note = read_struct(paths.runs / agent_of(run) / "setup.json", SetupNote)
    return note if note is not None and note.run == run else None


_HEALTH_FILE = "health.json"


class ReportedHealth(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``health.json``: what the runtime of the run last said of itself, at ``time``. ``context_usage``: 0 to 1."""

    time: AwareDatetime
    status: HealthStatus
    state: WorkerState
    last_activity: AwareDatetime
    context_usage: float | None = None
    error: str | None = None
    question: str | None = None


def write_reported_health(run_dir: RunDir, health: ReportedHealth) -> None:
    """Record what the runtime of a run says of its own health. Raises OSError."""
    atomic.write(run_dir.path / _HEALTH_FILE, msgspec.json.encode(health) + b"\n")


def read_reported_health(run_dir: RunDir) -> ReportedHealth | None:
    """Return what the runtime of a run said of its own health; None if it said nothing. Raises LizaError."""
    return read_struct(run_dir.path / _HEALTH_FILE, ReportedHealth)
