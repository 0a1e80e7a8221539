"""A process that got the pid of one that connected to the server, in a pid namespace in which the test chooses pids."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.namespaces import unshared

CONNECT = """
import os, signal, sys
from pathlib import Path
from liza.model.errors import LizaError
from liza.system.peers import Peer, PeerSession
from liza.model.errors import Refused
from liza.system.processes import identify_process

def start():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

root = Path(sys.argv[1])
first = start()
session, person = PeerSession(Peer(first, os.getuid())), PeerSession(Peer(first, os.getuid()))
identity = identify_process(first)
assert person.is_outside_sessions(root)
end(first)
while True:
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first - 1))
    second = start()
    assert second == first
    if identify_process(second) != identity:  # the kernel tells the start of a process to 10 ms
        break
    end(second)
try:
    print(session.find_run(root))
except Refused as problem:
    print(problem)
print(person.is_outside_sessions(root))
end(second)
"""


@pytest.mark.needs("unshare")
def test_a_reused_pid_does_not_speak_for_the_connected_process(tmp_path: Path) -> None:
    words = [*unshared(), sys.executable, "-c", CONNECT, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    refusal, outside = done.stdout.splitlines()
    assert "has ended" in refusal
    assert outside == "False"
