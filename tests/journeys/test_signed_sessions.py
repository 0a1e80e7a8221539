"""Sessions of a person whose git signs each commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import git
from tests.journeys.crews import QUICK, WORK, begun

# It signs with the key of an address only, as gpg does, and needs a variable.
PROGRAM = """\
#!/bin/sh
cat > /dev/null
case "$*" in *"<test@example.invalid>") ;; *) echo "no key for $*" >&2; exit 1;; esac
[ "$TEAM_KEY" = open ] || exit 1
echo "[GNUPG:] SIG_CREATED D 22 8 00 1 ABC" >&2
echo "-----BEGIN PGP SIGNATURE-----"
"""


@pytest.mark.campaign
def test_a_commit_that_cannot_be_signed_is_named_with_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "open")
    crew = begun(tmp_path)
    signer = tmp_path / "sign"
    signer.write_text(PROGRAM)
    signer.chmod(0o755)
    git(crew.root, "config", "--global", "gpg.program", str(signer))
    git(crew.root, "config", "--global", "commit.gpgSign", "true")
    try:
        assert "git commit-tree -S" in crew.liza("init", "g", "--no-test")
        crew.configure(**QUICK)
        crew.add("mail")
        supervisor = crew.agent("coder-1", crew.script("agent", WORK))
        text = "its git could not sign a commit; next: liza doctor"
        crew.wait(lambda state: any(text in (event.detail or "") for event in state.tasks[0].history), text)
        crew.liza("config", "set", "env_allow", "TEAM_KEY")
        crew.wait_status("mail", "READY_FOR_REVIEW")
        assert "BEGIN PGP SIGNATURE" in crew.git("cat-file", "-p", "task/mail")
        supervisor.stop()
    finally:
        crew.clean()
