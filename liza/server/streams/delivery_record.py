"""The ids of the events that a run's stream has sent, in their order: what a runtime that reconnects has received.

A runtime that connects without ``Last-Event-ID`` has received nothing: the record begins anew. The file is only a
record of the stream; whether a prompt was read is decided by its acknowledgment, which the inbox keeps.
"""

from __future__ import annotations

from pathlib import Path

from liza.programs.session import log_file
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, untrusted_files

STREAM_FILE = "stream"


class DeliveryRecord:
    """The record of one run. An id is appended before the event is sent: a crash in between sends it again."""

    def __init__(self, run_dir: RunDir) -> None:
        self._path: Path = run_dir.path / STREAM_FILE

    def begin(self, last_event_id: str | None) -> frozenset[str]:
        """Return the ids that the runtime has received. Raises OSError, NotRegularFile.

        These are the ids up to the last one that it names. An id that the record lacks proves only itself.
        """
        if not last_event_id:
            atomic.write(self._path, b"", sync=False, label="stream")
            return frozenset()
        data = untrusted_files.read_if_exists(self._path) or b""
        ids = data.decode(errors="replace").splitlines()
        positions = [index for index, name in enumerate(ids) if name == last_event_id]
        return frozenset(ids[: positions[-1] + 1]) if positions else frozenset({last_event_id})

    def add(self, event_id: str) -> None:
        """Append an id. Raises OSError, NotRegularFile."""
        with log_file.open_for_append(self._path) as file:
            file.write(f"{event_id}\n")
