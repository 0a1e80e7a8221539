"""Signatures of commits in sessions: one is tried, and what is missing is named with a command that leads on."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from liza.cli import app
from liza.crew.crew import find_crew
from liza.git import boxed_git
from liza.git.runner import Git
from liza.model.configuration import Confinement
from liza.model.errors import Finding
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery.doctor import doctor
from tests.conftest import git, variant

# A signing program of a team: it needs a variable, and makes a line that git takes for a signature.
TEAM_PROGRAM = """\
#!/bin/sh
[ "$TEAM_KEY" = open ] || { echo "no TEAM_KEY" >&2; exit 1; }
cat > /dev/null
echo "[GNUPG:] SIG_CREATED D 22 8 00 1 ABC" >&2
echo "-----BEGIN PGP SIGNATURE-----"
"""
BOTH_WAYS = [Confinement.OFF, pytest.param(Confinement.REQUIRED, marks=pytest.mark.needs("bwrap"))]
SIGNED = "sessions sign their commits; merges and other commits of Liza itself are not signed"


def sign_with(repo: Path, **settings: str) -> None:
    """Make the person's git sign each commit with these settings, such as ``gpg_format``."""
    git(repo, "config", "--global", "commit.gpgSign", "true")
    for name, value in settings.items():
        git(repo, "config", "--global", name.replace("_", "."), value)


def init_crew(repo: Path, confinement: Confinement = Confinement.OFF) -> list[str]:
    """What init says about signatures."""
    facts: list[tuple[str, str]] = []
    init(repo, InitOptions("g", no_test=True, confinement=confinement), lambda *fact: facts.append(fact))
    return [text for name, text in facts if name == "signing"]


def find_signing(repo: Path) -> Finding:
    (finding,) = (finding for finding in doctor(repo).findings if finding.about == "signing")
    return finding


def take_remedy(repo: Path, fact: str, name: str, more: str = "") -> None:
    """Type the command that ends the fact, which names a variable; sessions sign then."""
    command = f"liza config set env_allow {name}"
    assert fact.endswith(f"they can with {name} of this terminal: {command}")
    assert find_signing(repo).hint == command
    with chdir(repo):
        app.run_liza(shlex.split(command)[1:])
    assert find_crew(repo).board.read().config.env_allow == (name,)
    assert (find_signing(repo).text, find_signing(repo).ok) == (SIGNED + more, True)


def make_program(repo: Path, text: str) -> None:
    path = repo.parent / "sign"
    path.write_text(text)
    path.chmod(0o755)
    sign_with(repo, gpg_program=str(path))


@pytest.fixture
def ssh_agent() -> Iterator[None]:
    output = subprocess.run(["ssh-agent", "-s"], check=True, capture_output=True, text=True).stdout
    variables = dict(
        part.split("=", 1) for part in output.split(";") if part.strip().startswith("SSH_") for part in [part.strip()]
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
        subprocess.run(["ssh-agent", "-k"], check=True, capture_output=True)


@pytest.mark.sample(1)
@pytest.mark.needs("ssh-agent")
@pytest.mark.usefixtures("ssh_agent")
@pytest.mark.parametrize("form", ["file", variant("literal"), variant("command")])
@pytest.mark.parametrize("confinement", BOTH_WAYS)
def test_init_names_the_command_to_reach_an_ssh_agent_key(repo: Path, form: str, confinement: Confinement) -> None:
    key = repo.parent / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    subprocess.run(["ssh-add", "-q", key], check=True)
    key.unlink()
    public = key.with_suffix(".pub")
    if form == "command":
        sign_with(repo, gpg_format="ssh", gpg_ssh_defaultKeyCommand="ssh-add -L")
    else:
        sign_with(
            repo,
            gpg_format="ssh",
            user_signingKey=str(public) if form == "file" else f"key::{public.read_text().strip()}",
        )
    (fact,) = init_crew(repo, confinement)
    assert fact.startswith("sessions cannot sign their commits, as your git does: error: ")
    push = "" if confinement is Confinement.OFF else "; in their box they have the socket of your ssh agent"
    take_remedy(repo, fact, "SSH_AUTH_SOCK", push and f"{push}, which can also push")
    assert "commit" not in git(repo, "fsck", "--unreachable", "--no-progress"), "the commit of the trial is not kept"


@pytest.mark.sample(1)
@pytest.mark.needs("gpg")
@pytest.mark.parametrize("confinement", BOTH_WAYS)
def test_a_gpg_key_is_found_by_the_persons_address(
    repo: Path, monkeypatch: pytest.MonkeyPatch, confinement: Confinement
) -> None:
    home = repo.parent / "gnupg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    key = ["--quick-gen-key", "Test Person <test@example.invalid>", "ed25519", "sign", "0"]
    subprocess.run(["gpg", "-q", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", *key], check=True)
    try:
        sign_with(repo)
        (fact,) = init_crew(repo, confinement)
        take_remedy(repo, fact, "GNUPGHOME")
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=True)


def test_a_key_needing_a_terminal_is_named_with_its_command(repo: Path) -> None:
    make_program(repo, TEAM_PROGRAM)
    (fact,) = init_crew(repo)
    assert fact.endswith(
        "; in a terminal the signing program can ask you for it: git commit-tree -S -m trial 'HEAD^{tree}'"
    )
    assert not find_signing(repo).ok


def test_the_doctor_runs_no_signing_program_before_init(repo: Path) -> None:
    make_program(repo, f"#!/bin/sh\ntouch {repo.parent}/ran\nexit 1\n")
    doctor(repo)
    assert not (repo.parent / "ran").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (("user.signingkey", "<me@example.invalid>"),)),
        ({"gpg.format": "x509"}, (("user.signingkey", "<me@example.invalid>"),)),
        ({"gpg.format": "ssh"}, ()),
        ({"user.signingKey": "ABC"}, ()),
        ({"commit.gpgSign": "off"}, ()),
        ({"commit.gpgSign": "off", "tag.gpgSign": "yes"}, (("user.signingkey", "<me@example.invalid>"),)),
    ],
)
def test_a_session_gets_a_key_only_where_git_would(
    repo: Path, settings: dict[str, str], expected: tuple[tuple[str, str], ...]
) -> None:
    for name, value in {"commit.gpgSign": "true", **settings}.items():
        git(repo, "config", name, value)
    assert boxed_git.key_settings(Git(repo), "me@example.invalid") == expected


@pytest.mark.parametrize("has_agent", [False, True])
def test_a_locked_key_of_ssh_is_added_to_an_agent(repo: Path, monkeypatch: pytest.MonkeyPatch, has_agent: bool) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if has_agent:
        monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    key = Path(os.environ["HOME"]) / "id"
    key.write_text("locked\n")
    sign_with(repo, gpg_format="ssh", user_signingKey="~/id.pub")
    alone = f'eval "$(ssh-agent -s)" && ssh-add {key} && liza doctor'
    assert boxed_git.unlock_command(Git(repo)) == (f"ssh-add {key}" if has_agent else alone)
