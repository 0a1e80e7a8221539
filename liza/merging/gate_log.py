"""``.liza/gates.jsonl``: one line per run of a gate, from which retries of flaky gates and estimates are derived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from liza.board.shared_records import SharedLog
from liza.crew import shared_logs
from liza.crew.crew import Crew
from liza.model import gates
from liza.model.errors import LizaError
from liza.model.gates import GateRun
from liza.model.paths import Paths
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import decodable
from liza.programs.session import log_file
from liza.system import atomic, untrusted_files

REMAINING_LINES = 2000
"""Number of lines that remain when the file has become twice as long."""


def read_runs(paths: Paths) -> tuple[GateRun, ...]:
    """Return the recorded runs, also those of other hosts, oldest first. An incomplete last line was cut by a crash and
    is skipped.

    Raises LizaError if a line cannot be read, NotRegularFile if the path is not a regular file.
    """
    data = untrusted_files.read_if_exists(paths.gates) or b""
    runs = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            runs.append(msgspec.json.decode(line, type=decodable(GateRun)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = describe_decode_error(error, GateRun)
            raise LizaError(
                f"{paths.gates}:{number} cannot be read: {reason}", f"sed -i {number}d {paths.gates}"
            ) from error
    shared = shared_logs.read_shared(paths, SharedLog.GATES, GateRun)
    return tuple(sorted({*shared, *runs}, key=lambda run: run.time)) if shared else tuple(runs)


def refresh_runs(crew: Crew) -> tuple[GateRun, ...]:
    """As ``read_runs``, with what other hosts have recorded until now. Raises LizaError, OSError."""
    shared_logs.refresh(crew, SharedLog.GATES)
    return read_runs(crew.paths)


def append_runs(paths: Paths, runs: Iterable[GateRun]) -> None:
    """Append runs; safe from several threads. Raises OSError, NotRegularFile."""
    with log_file.open_for_append(paths.gates) as log:
        log.write("".join(msgspec.json.encode(run).decode() + "\n" for run in runs))


def _repair(paths: Paths) -> None:
    """Remove an incomplete last line, and the oldest lines of a long file. No gate runs meanwhile. Raises OSError."""
    data = untrusted_files.read_if_exists(paths.gates) or b""
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    if (data and not data.endswith(b"\n")) or len(lines) >= 2 * REMAINING_LINES:
        atomic.write(paths.gates, b"".join(lines[-REMAINING_LINES:]), sync=False)


def read_or_report(crew: Crew) -> tuple[GateRun, ...]:
    """Return the recorded runs, for a merger: it goes on without them, and the alert log names a file that cannot be
    read. The caller holds the merge lock."""
    try:
        _repair(crew.paths)
        return refresh_runs(crew)
    except (LizaError, OSError) as error:
        _report(crew, error)
        return ()


def record(crew: Crew, past: Sequence[GateRun], runs: Sequence[GateRun]) -> tuple[GateRun, ...]:
    """Append the runs of a candidate and report flaky gates in the alert log. Return ``past`` with ``runs``."""
    for run in gates.newly_flaky(past, runs):
        line = f"{run.gate} failed and then passed on {run.candidate[:10]} ({run.subject}), without a change"
        crew.append_alert_log([f"flaky_gate  {line}. Next: liza queue"])
    try:
        append_runs(crew.paths, runs)
    except (LizaError, OSError) as error:
        _report(crew, error)
    return (*past, *runs)


def _report(crew: Crew, error: LizaError | OSError) -> None:
    hint = error.hint if isinstance(error, LizaError) else "liza doctor"
    crew.append_alert_log([f"gate_log  retries and estimates do not know earlier runs: {error}. Next: {hint}"])
