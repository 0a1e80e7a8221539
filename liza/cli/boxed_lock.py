"""``liza lock`` in the box of a session: the command runs inside, on the private copy of the board.

The session cannot hold the board's lock. The copy is brought up to date before the command, and handed in after it:
what changed meanwhile is merged, as ``liza edit --from -`` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from liza.model.errors import UsageError
from liza.model.paths import Paths
from liza.system import atomic
from liza.system.locks import Lock
from liza.system.program_path import run_command

_LIZA = (sys.executable, "-P", "-c", "import sys; from liza.client import main; sys.exit(main())")


def lock_in_box(words: Sequence[str]) -> int:
    """Run the command after ``--``, and hand in the board; return its exit status, or else that of the hand-in.

    Raises LockTimeout while another command of the box has the copy, Missing, UsageError.
    """
    command = list(words[words.index("--") + 1 :]) if "--" in words else []
    if not command:
        raise UsageError("lock needs a command", "liza lock -- true")
    paths = Paths(Path(os.environ["LIZA_ROOT"]))
    paths.locks.mkdir(parents=True, exist_ok=True)
    with Lock(paths.state_lock):
        printed = subprocess.run([*_LIZA, "edit", "--print"], stdout=subprocess.PIPE, check=False)
        if printed.returncode:
            return printed.returncode
        atomic.write(paths.state, printed.stdout, sync=False)
        status = run_command(command)
        text = paths.state.read_bytes() if paths.state.exists() else b""
        if text == printed.stdout:
            return status
        handed_in = subprocess.run([*_LIZA, "edit", "--from", "-"], input=text, check=False).returncode
    return status or handed_in
