"""One call to a tmux server, with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import libtmux

from liza.programs.terminal.tmux_socket import TmuxNotAnswering
from liza.rules.errors import Refused

CALL_LIMIT = 10.0  # seconds; a call takes some milliseconds


class TmuxCall(libtmux.common.tmux_cmd):
    """A tmux client that is awaited in a thread.

    libtmux waits without a limit. Killing the client does not end that wait, because the server holds the other ends of
    its pipes.
    """

    def __init__(self, *words: str) -> None:
        self.argv = words
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._wait, name="tmux", daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        try:
            super().__init__(*self.argv)
        except Exception as error:  # noqa: BLE001 - raised again by call_tmux
            self.failure = error

    def kill(self) -> None:
        """Kill the client: its result is no longer needed."""
        if hasattr(self, "process"):
            self.process.kill()


_unanswered: dict[str, TmuxCall] = {}
"""Calls that timed out, by the server's socket: there is no new call to a server until its last one is over."""


def call_tmux(address: str, words: Sequence[str]) -> TmuxCall:
    """Return the answer of the server at a socket.

    Raises TmuxNotAnswering after CALL_LIMIT seconds, or at once if the server has not answered the last call; Refused
    if there is no tmux.
    """
    earlier = _unanswered.get(address)
    if earlier is not None and earlier.thread.is_alive():
        raise TmuxNotAnswering("the tmux server has not answered an earlier call", f"tmux -S {address} ls")
    # -u: the screen is UTF-8 in every locale.
    call = TmuxCall("-S", address, "-u", *words)
    call.thread.join(CALL_LIMIT)
    if call.thread.is_alive():
        _unanswered[address] = call
        call.kill()
        raise TmuxNotAnswering(f"the tmux server did not answer within {CALL_LIMIT:.0f} s", f"tmux -S {address} ls")
    if isinstance(call.failure, libtmux.exc.LibTmuxException):
        error = call.failure
        raise Refused(f"tmux cannot be called: {error or type(error).__name__}", "apt install tmux") from error
    if call.failure is not None:
        raise call.failure
    return call
