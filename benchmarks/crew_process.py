"""Run the supervisors of a crew, and account for every process that they and their sessions start.

``python -m benchmarks.crew_process ROOT PROGRAM AGENT…`` starts the supervisors and waits for the end of its stdin. It
is the reaper of orphans (PR_SET_CHILD_SUBREAPER): sessions, shims and merge jobs that were left by their parents are
waited for here, so the CPU time of the whole crew is known, with that of the command server. It prints one line of
JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from liza.system import server_control
from tests.journeys.crews import BIN

_PR_SET_CHILD_SUBREAPER = 36


def main(root: Path, program: str, agents: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if "COSTS_LOG" not in os.environ:  # Commands and supervisors run as a person's, who sets no variable of Python.
        for name in [name for name in os.environ if name.startswith("PYTHON")]:
            del os.environ[name]
        server_control.start()
    supervisors = [_start(root, agent, program) for agent in agents]
    running = {process.pid for process in supervisors}
    print(json.dumps([process.pid for process in supervisors]), flush=True)
    threading.Thread(target=_stop_at_eof, args=(supervisors,), daemon=True).start()
    cpu, reaped = 0.0, 0
    while True:
        try:
            pid, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu += usage.ru_utime + usage.ru_stime
        reaped += 1
        running.discard(pid)
        if not running:
            server_control.stop()
    print(json.dumps({"cpu": cpu, "reaped": reaped}), flush=True)


def _start(root: Path, agent: str, program: str) -> subprocess.Popen[bytes]:
    with (root.parent / f"{agent}.log").open("wb") as log:
        words = [str(BIN / "liza-agent"), agent, "--program", program]
        return subprocess.Popen(
            words, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _stop_at_eof(supervisors: list[subprocess.Popen[bytes]]) -> None:
    """Stop the supervisors. The second signal makes those stop that wait for the end of a session."""
    sys.stdin.read()
    for seconds in (0.0, 5.0, 5.0):
        time.sleep(seconds)
        for process in supervisors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
