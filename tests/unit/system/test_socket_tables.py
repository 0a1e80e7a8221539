"""The process at the other end of a socket on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liza.model.errors import Refused
from liza.system.peers import Peer, PeerSession


def test_the_session_of_an_ended_process_is_unknown(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(Refused, match="has ended"):
        PeerSession(Peer(pid, os.getuid())).find_run(tmp_path)
