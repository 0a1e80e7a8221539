"""Send the lines of the logs of this host to the server of the crew."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from liza.board.shared_records import SharedLog, SharedRecords
from liza.crew.shared_logs import BATCH, own_log
from liza.model.gates import GateRun
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry
from liza.model.value_classes import decodable
from liza.system import file_growth

_TYPES: Final[Mapping[SharedLog, type[Any]]] = {SharedLog.USAGE: LedgerEntry, SharedLog.GATES: GateRun}


class LogSender:
    """Sends the lines of a log of this host. Lines that are no records are a fault of this host, and stay here."""

    def __init__(self, paths: Paths, log: SharedLog) -> None:
        self._log, self._tail = log, file_growth.Tail(own_log(paths, log), anew=True)
        self._waiting: list[str] = []

    def send(self, shared: SharedRecords) -> int:
        """Send what was appended since the last call that succeeded, first all; return how many lines were new.

        Raises BoardUnavailable, BoardServerRefused, NotRegularFile, OSError.
        """
        self._waiting += filter(self._is_record, self._tail.lines())
        count = 0
        while self._waiting:
            batch = self._waiting[:BATCH]
            count += shared.append_lines(self._log, batch)
            del self._waiting[: len(batch)]
        return count

    def _is_record(self, line: str) -> bool:
        with suppress(msgspec.DecodeError, RecursionError):
            msgspec.json.decode(line, type=decodable(_TYPES[self._log]))
            return True
        return False
