"""Wait for the end of a `liza mcp`, and hand off what it has claimed: agent programs kill their servers after 0.1 s.

Each line of stdin is the request that ends one claim; a later one for the same worktree replaces it. The server has the
other end of the pipe, which the kernel closes also after SIGKILL.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable


def choose_last(requests: Iterable[bytes]) -> Iterable[bytes]:
    """Return the last request for each worktree."""
    return {json.loads(request)["bound"]["worktree"]: request for request in requests}.values()


def main() -> None:
    """Read until the server has ended, then end the last claim in each worktree."""
    for request in choose_last(sys.stdin.buffer):
        words, root = [sys.executable, "-P", "-m", "liza.mcp.mcp_calls"], json.loads(request)["bound"]["root"]
        subprocess.run(words, input=request, stdout=subprocess.DEVNULL, cwd=root, check=False)


if __name__ == "__main__":
    main()
