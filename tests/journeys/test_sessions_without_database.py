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
    host.liza("config", "set", "confinement", "required")
    host.liza("config", "set", "shared", f'["{host.notes}"]')
    host.add("first")
    host.up("coder-1", coder=LOOK.format(passfile=passfile, sockets=hosts.postgresql.sockets) + WORK)
    until(lambda: host.statuses()["first"] == "READY_FOR_REVIEW", "the session submits")
    environment = (host.notes / "environment").read_text()
    assert "LIZA_CONFINED=yes" in environment
    assert "the-password" not in environment
    assert "postgresql://" not in environment
    assert not [line for line in environment.splitlines() if line.startswith(("PG", "CREDENTIALS_DIRECTORY"))]
    assert [(host.notes / name).read_text() for name in ("visible", "named")] == ["", ""]
