"""``.liza/tx/request-sync``: how often in a row `liza up` could not read the open pull request."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from liza.landing.rules.poll_rules import SyncFailure
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.programs.session import run_directory
from liza.system import atomic


def read_failure(paths: Paths) -> SyncFailure | None:
    """Return the recorded failures; None if the last reading succeeded, or if the record cannot be read."""
    # A damaged record only hides a notice; the next failure writes it again.
    with suppress(LizaError, OSError):
        return run_directory.read_struct(paths.request_sync, SyncFailure)
    return None


def record_failure(paths: Paths, number: int, error: LizaError) -> SyncFailure:
    """Count a failure of reading pull request ``number``; return the record. Raises OSError."""
    before = read_failure(paths)
    count = before.failures if before is not None and before.number == number else 0
    failure = SyncFailure(number=number, failures=count + 1, message=error.message, hint=error.hint)
    atomic.write(paths.request_sync, msgspec.json.encode(failure) + b"\n", sync=False)
    return failure


def clear_failure(paths: Paths) -> None:
    """Forget the failures: the pull request was read, or no request is open. Raises OSError."""
    paths.request_sync.unlink(missing_ok=True)
