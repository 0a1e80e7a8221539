"""Signals to a supervisor: they reach it whichever of its threads the kernel gives them to."""

from __future__ import annotations

import subprocess
import sys

CHILD = """
import queue, signal, threading, types
from pathlib import Path
from liza.supervisor import main

supervisor = types.SimpleNamespace(events=queue.Queue())
main._install_signal_handlers(supervisor)
other = threading.Thread(target=threading.Event().wait, daemon=True)
other.start()

def send():
    waiting = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")
    while waiting.read_text().rpartition(") ")[2][0] != "S":
        pass
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.pthread_kill(other.ident, number)

threading.Thread(target=send, daemon=True).start()
for _ in range(3):
    print(supervisor.events.get())
"""


def test_a_signal_in_another_thread_wakes_a_waiting_supervisor() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=60, check=True)
    # The kernel gives signals that wait for one thread in the order of their numbers.
    assert sorted(done.stdout.splitlines()) == [
        "RetireRequest()",
        "StopRequest(force=False)",
        "StopRequest(force=True)",
    ]
