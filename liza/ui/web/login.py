"""Which browsers may use the page: a code from the person's terminal is exchanged for a cookie, once.

Only digests are on disk, in a file of the person below the state directory. The code is in memory only: neither in the
arguments nor in the environment of the process, where agents of the same user could read it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.errors import NotRegularFile
from liza.model.value_classes import AwareDatetime, FrozenStruct, Mutable, Value, decodable, replace
from liza.system import atomic, untrusted_files
from liza.ui.seen import state_file

CODE_LIFE: Final = timedelta(minutes=5)
"""How long a code can be used."""
IDLE_LIFE: Final = timedelta(hours=12)
"""How long a browser stays logged in that sends no request."""
MAX_LIFE: Final = timedelta(days=30)
"""How long a browser stays logged in at most."""
MAX_WRONG: Final = 10
"""Wrong codes in a row after which none is taken for ``LOCK_TIME``."""
LOCK_TIME: Final = timedelta(minutes=1)
_NOTE_STEP: Final = timedelta(minutes=10)
"""How old the record of a browser's last request may be: not each request writes the file."""
MAX_BROWSERS: Final = 100
"""Browsers that are kept; the oldest logins end first."""
_MAX_BYTES: Final = 100_000
_TOKEN_BYTES: Final = 16


class IssuedCode(Value):
    """A code and the time at which it ends."""

    code: str
    end: datetime


class LoginCodes(Mutable, eq=False):
    """The code that is valid now, and how many wrong ones were tried. A code is used once; a new one ends the last."""

    issued: IssuedCode | None = None
    wrong: int = 0
    locked_until: datetime | None = None

    def issue(self, now: datetime) -> str:
        """Return a new code."""
        self.issued = IssuedCode(secrets.token_urlsafe(_TOKEN_BYTES), now + CODE_LIFE)
        return self.issued.code

    def take(self, code: str, now: datetime) -> bool:
        """Return whether the code is valid, and use it up."""
        if self.is_locked(now):
            return False
        issued = self.issued
        if issued is None or now >= issued.end or not hmac.compare_digest(code.encode(), issued.code.encode()):
            self.wrong += 1
            if self.wrong >= MAX_WRONG:
                self.wrong, self.locked_until = 0, now + LOCK_TIME
            return False
        self.issued, self.wrong = None, 0
        return True

    def is_locked(self, now: datetime) -> bool:
        """Return whether no code is taken now, because too many were wrong."""
        return self.locked_until is not None and now < self.locked_until


class Browser(FrozenStruct, frozen=True, kw_only=True):
    """A browser that is logged in: the digest of its cookie, and the times of its login and of its last request."""

    digest: str
    since: AwareDatetime
    used: AwareDatetime

    def is_valid(self, now: datetime) -> bool:
        """Return whether its cookie is still taken."""
        return now - self.used < IDLE_LIFE and now - self.since < MAX_LIFE


class Browsers:
    """The browsers that are logged in to the page of a crew, in a file that only the person can read.

    Used by several threads. Each call reads the file: another process may have logged all browsers out.
    """

    def __init__(self, crew: Crew) -> None:
        self._path = state_file(crew.paths, "web")
        self._lock = threading.Lock()

    @property
    def cookie(self) -> str:
        """The name of the cookie: that of another crew at another port would replace one with the same name."""
        return f"liza_{self._path.stem[:8]}"

    def add(self, now: datetime) -> str:
        """Log a browser in; return the value of its cookie. Raises OSError."""
        token = secrets.token_urlsafe(_TOKEN_BYTES * 2)
        with self._lock:
            rows = (*self._read(now), Browser(digest=_digest(token), since=now, used=now))
            self._write(rows[-MAX_BROWSERS:])
        return token

    def has(self, token: str, now: datetime, *, is_use: bool) -> bool:
        """Return whether this is the cookie of a browser that is logged in. ``is_use``: note that it was used."""
        digest = _digest(token)
        with self._lock:
            browsers = self._read(now)
            browser = next((row for row in browsers if hmac.compare_digest(row.digest, digest)), None)
            if is_use and browser is not None and now - browser.used >= _NOTE_STEP:
                with suppress(OSError):  # a full disk must not log the person out
                    self._write(tuple(replace(row, used=now) if row is browser else row for row in browsers))
        return browser is not None

    def remove(self, token: str, now: datetime) -> None:
        """Log a browser out. Raises OSError."""
        digest = _digest(token)
        with self._lock:
            self._write(tuple(row for row in self._read(now) if row.digest != digest))

    def clear(self) -> None:
        """Log all browsers out. Raises OSError."""
        with self._lock:
            self._path.unlink(missing_ok=True)

    def _read(self, now: datetime) -> tuple[Browser, ...]:
        """Return those whose time is not over; none if the file is missing or damaged: then all log in again."""
        with suppress(OSError, NotRegularFile, msgspec.DecodeError):
            data = untrusted_files.read(self._path, _MAX_BYTES)
            return tuple(
                row for row in msgspec.json.decode(data, type=decodable(tuple[Browser, ...])) if row.is_valid(now)
            )
        return ()

    def _write(self, browsers: tuple[Browser, ...]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(self._path, msgspec.json.encode(browsers) + b"\n", label="browsers")


def log_out_all(crew: Crew) -> None:
    """Log all browsers out, also of a server that runs. Raises Refused inside a session, OSError."""
    require_person(crew, planner=False)
    Browsers(crew).clear()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
