"""The program that sends one notice through apprise: ``python -m liza.alarms.apprise_child``.

The only module that imports apprise: the extra ``liza[notify]``. It is a child process, so that a service that never
answers can be ended, and so that no other command loads apprise. Input: a JSON object with ``url``, ``title`` and
``body``; without ``body`` the URL is only checked. Exit status: 0 if the service accepted the notice. Otherwise the
reason is on stderr. It contains no part of the URL, and nothing that the service answered.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from typing import Any

_JSON_SCHEMES = {"http": "json", "https": "jsons"}
LIFETIME = 60
"""Seconds after which the process ends by SIGALRM, if the process that started it was killed."""


class _StatusHandler(logging.Handler):
    """Keeps the HTTP status of the last failed request that apprise logs."""

    status = ""

    def emit(self, record: logging.LogRecord) -> None:
        match = re.search(r"\berror=(\d{3})\b", record.getMessage())
        self.status = match[1] if match else self.status


def main() -> int:
    """Send the notice on stdin; return the exit status."""
    signal.alarm(LIFETIME)
    request: dict[str, Any] = json.load(sys.stdin)
    import apprise

    handler = _StatusHandler()
    logger = logging.getLogger("apprise")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    service = apprise.Apprise()
    if not service.add(request["url"]):
        return _fail(f"apprise does not accept this URL{_suggest_scheme(request['url'])}")
    if "body" not in request:
        return 0
    try:
        if service.notify(request["body"], request["title"], body_format=apprise.NotifyFormat.TEXT):
            return 0
    except (OSError, TypeError, ValueError) as error:
        return _fail(f"the service failed: {type(error).__name__}")
    return _fail(f"the service answered HTTP {handler.status}" if handler.status else "the service gave no answer")


def _suggest_scheme(url: str) -> str:
    """Return what to write instead of a plain web address, which apprise knows for few services; else empty."""
    scheme = url.partition("://")[0].lower()
    other = _JSON_SCHEMES.get(scheme)
    return "" if other is None else f"; to send JSON by POST, write {other}:// instead of {scheme}://"


def _fail(reason: str) -> int:
    sys.stderr.write(reason)
    return 1


if __name__ == "__main__":
    # No traceback: it could show the URL.
    sys.excepthook = lambda kind, error, trace: sys.stderr.write(f"the sender failed: {kind.__name__}") and None
    sys.exit(main())
