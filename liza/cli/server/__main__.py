"""``python -m liza.cli.server SOCKET``: the process of the command server. `server_control.py` starts it."""

import sys
from pathlib import Path

from liza.cli.server.server import run_server

if __name__ == "__main__":
    run_server(Path(sys.argv[1]))
