"""Print an error of a command: its message and hint, or JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from liza.model.errors import LizaError, format_error
from liza.printing.columns import strip_controls
from liza.system.installation import qualify_command
from liza.text.undecoded import escape_undecoded


def print_error(name: str, error: LizaError, as_json: bool) -> int:
    """Print the error and its hint on stderr; return its exit code."""
    message, hint = qualify_command(error.message), qualify_command(error.hint or "")
    if as_json:
        data = {"code": error.code, "message": message, "hint": hint or error.hint}
        text = json.dumps({"error": {key: escape_undecoded(value) for key, value in data.items()}})
    else:
        text = strip_controls(format_error(name, message, hint))
    # Each stream may have no reader, or a full disk; the exit code is that of the error all the same.
    _write_or_close(sys.stdout, "")
    _write_or_close(sys.stderr, text + "\n")
    return error.exit_code


def _write_or_close(stream: TextIO, text: str) -> None:
    """Write and flush; if that fails, replace the stream by /dev/null: Python must not flush it again at its exit."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
