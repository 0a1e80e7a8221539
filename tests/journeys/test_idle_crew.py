"""A supervisor that has nothing to do sleeps until its next poll."""

from __future__ import annotations

import re
from pathlib import Path

from liza.model.model import State
from tests.journeys.crews import WORK, started


def _main_thread_wakeups(pid: int) -> int:
    """How often the main thread of a process has gone to sleep."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    match = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)
    assert match is not None
    return int(match[1])


def test_commands_that_read_do_not_wake_an_idle_supervisor(tmp_path: Path) -> None:
    with started(tmp_path, poll_interval=3600) as crew:
        pid = crew.agent("coder-1", crew.script("coder", WORK)).process.pid
        crew.wait_supervised("coder-1")
        counts: list[int] = []

        def is_asleep(_: State) -> bool:
            crew.liza("status")
            counts.append(_main_thread_wakeups(pid))
            return counts[-1:] == counts[-2:-1]

        crew.wait(is_asleep, "a supervisor that sleeps")
        for _ in range(3):
            crew.liza("status")
        assert _main_thread_wakeups(pid) == counts[-1]
