"""One question to a tmux server, which has so long to answer it and no longer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import libtmux

from liza.programs.terminal.tmux_socket import TmuxNotAnswering
from liza.rules.errors import Refused

CALL_LIMIT = 10.0  # seconds; an answer takes some milliseconds


class TmuxCall(libtmux.common.tmux_cmd):
    """A client of tmux, waited for beside the one who asks: libtmux waits without a limit, and to end the client does
    not end that, for the server has the other ends of its pipes."""

    def __init__(self, *words: str) -> None:
        self.argv = words
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._wait, name="tmux", daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        try:
            super().__init__(*self.argv)
        except Exception as error:  # noqa: BLE001 - it is for the one who asks
            self.failure = error

    def kill(self) -> None:
        """End the client: nobody waits for what it would bring."""
        if hasattr(self, "process"):
            self.process.kill()


_unanswered: dict[str, TmuxCall] = {}
"""The questions that were given up, by the socket of the server: it is not asked another before those are over."""


def call_tmux(address: str, words: Sequence[str]) -> TmuxCall:
    """What the server at a socket answers. Raises Silent after ``LIMIT`` seconds, or at once where it has not answered
    the last question yet; Refused where there is no tmux."""
    earlier = _unanswered.get(address)
    if earlier is not None and earlier.thread.is_alive():
        raise TmuxNotAnswering("the tmux server has not answered yet what it was asked before", f"tmux -S {address} ls")
    # -u: what a screen holds is UTF-8, whatever the locale says.
    call = TmuxCall("-S", address, "-u", *words)
    call.thread.join(CALL_LIMIT)
    if call.thread.is_alive():
        _unanswered[address] = call
        call.kill()
        raise TmuxNotAnswering(f"the tmux server did not answer within {CALL_LIMIT:.0f} s", f"tmux -S {address} ls")
    if isinstance(call.failure, libtmux.exc.LibTmuxException):
        why = call.failure
        raise Refused(f"tmux cannot be asked: {why or type(why).__name__}", "apt install tmux") from why
    if call.failure is not None:
        raise call.failure
    return call
