"""What a session of a crew on PostgreSQL finds of the database: nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import until
from tests.journeys.crews import WORK
from tests.journeys.test_code_of_hosts import Hosts
from tests.journeys.test_code_of_hosts import hosts as hosts

LOOK = """\
cat /proc/self/environ /proc/[0-9]*/environ 2> /dev/null | tr '\\0' '\\n' > $NOTES/environment || true
cat "$LIZA_ROOT/.liza/board.toml" {passfile} > $NOTES/visible 2> /dev/null || true
ls {sockets} >> $NOTES/visible 2> /dev/null || true
grep -rls "postgresql://" "$LIZA_ROOT/.liza" . > $NOTES/named || true
"""


@pytest.mark.needs("bwrap")
def test_a_session_in_a_box_finds_no_way_to_the_database(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    passfile = Path(os.environ["HOME"], ".pgpass")
    passfile.write_text("*:*:*:*:the-password\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    monkeypatch.setenv("PGPASSWORD", "the-password")
    host = hosts.h1
    host.configure(confinement="required", shared=[str(host.notes)])
    host.add("first")
    host.up("coder-1", coder=LOOK.format(passfile=passfile, sockets=hosts.postgresql.sockets) + WORK)
    until(lambda: host.statuses()["first"] == "READY_FOR_REVIEW", "the session submits")
    environment = (host.notes / "environment").read_text()
    assert "LIZA_CONFINED=yes" in environment
    assert "the-password" not in environment
    assert "postgresql://" not in environment
    assert not [line for line in environment.splitlines() if line.startswith(("PG", "CREDENTIALS_DIRECTORY"))]
    assert [(host.notes / name).read_text() for name in ("visible", "named")] == ["", ""]


def test_a_session_without_a_box_needs_no_password(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the supervisor has the passfile: systemd gives it to a unit, and a person to a shell."""
    monkeypatch.setenv("PGPASSFILE", "/nowhere/passfile")
    host = hosts.h1
    host.add("first")
    look = 'tr "\\0" "\\n" < /proc/self/environ > $NOTES/environment\nliza status > $NOTES/status\n'
    host.up("coder-1", coder=look + WORK)
    until(lambda: host.statuses()["first"] == "READY_FOR_REVIEW", "the session submits")
    names = [line.partition("=")[0] for line in (host.notes / "environment").read_text().splitlines()]
    assert not [name for name in names if name.startswith(("PG", "CREDENTIALS_DIRECTORY"))]
    assert "LIZA_SESSION_SOCKET" in names
    assert "coder-1" in (host.notes / "status").read_text()
