"""A brief changes neither what the tests of a project say nor what git has of its instructions file."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.crew.crew import Crew, find_crew
from liza.git import hiding
from liza.model.derived import find_current_work
from liza.model.errors import Refused
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunRecord
from liza.project.baseline import InitOptions
from liza.project.config_verb import set_setting
from liza.project.init import init
from liza.supervisor.session_files import WorktreeFiles, remove_worktree_files
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.rules.coding import submit
from liza.tasks.submit import inspect_worktree
from liza.tasks.task import add
from tests.conftest import commit_all, git, hidden_block, variant

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RULES = "# Rules\n\n- be kind\n"
PRESET = Preset(name="x", instructions=("AGENTS.override.md", "AGENTS.md"), creates="AGENTS.md")


def files_of_briefs(root: Path) -> list[str]:
    """What a baseline could leave: blocks, bindings, and directories of its runs."""
    files = [root / ".git" / "info" / name for name in ("attributes", "exclude")]
    info = "".join(file.read_text() for file in files if file.exists())
    left = [line for line in info.splitlines() if "run=" in line or "liza-" in line]
    return [*left, *(path.name for path in (root / ".liza" / "run").iterdir())]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("test", "said"),
    [
        pytest.param("test $(wc -c < AGENTS.md) -lt 100 || { echo 1 error; echo AGENTS.md: large; false; }",
                     "AGENTS.md, CLAUDE.md: AGENTS.md: large; ", id="size"),
        variant("head -n 1 AGENTS.md | grep '^# '", "AGENTS.md, CLAUDE.md: exit 1; ", name="first line"),
        pytest.param("ls; test ! -e CLAUDE.md", "AGENTS.md, CLAUDE.md: CLAUDE.md; ", id="new file"),
        pytest.param('test -z "$CI" && grep -L liza AGENTS.md | grep .', "AGENTS.md, CLAUDE.md: exit 1; ",
                     id="variables too"),
        variant('test -z "$CI"', None, name="only variables"),
        variant("! grep -n '[[:blank:]]$' *.md && ! grep -P '\\t' *.md", None, name="blanks"),
        variant('test -z "$(git status --porcelain)" && git diff --exit-code HEAD', None, name="git"),
        pytest.param('echo "- more" >> AGENTS.md && git diff HEAD > d && git checkout AGENTS.md && grep "^+" d | wc -l'
                     " | grep 2 && rm d", None, id="written and put back"),
    ],
)  # fmt: skip
def test_init_names_a_check_that_only_a_brief_turns_red(repo: Path, test: str, said: str | None) -> None:
    commit_all(repo, "rules", {"AGENTS.md": RULES})
    facts: dict[str, str] = {}
    options = InitOptions(goal="g", test=test, no_proof=True)
    init(repo, options, lambda name, text: facts.__setitem__(name, text))
    assert facts["baseline"].startswith(f"{test}: ok")
    expected = said and f"{test} is red with a session's brief in {said}"
    assert facts.get("brief", "").partition("`liza config set brief prompt`")[0] == (expected or "")
    assert "writes" not in facts
    assert ("variables" in facts) == ("$CI" in test)
    assert files_of_briefs(repo) == []
    assert git(repo, "status", "--porcelain") == ""


class Session:
    """A session of coder-1 in the slot of its claimed task; no program runs."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        add(crew, [TaskFields(id="a", description="d", done_when="e", scope="f", spec_ref="README.md")])
        claim(crew, "coder-1", "a")
        self.slot, self.notices = crew.paths.slot("s1"), list[str]()

    @contextmanager
    def running(self, preset: Preset = PRESET) -> Iterator[str]:
        """Yield the prompt."""
        state = self.crew.board.read()
        work = find_current_work(state, "coder-1")
        assert work is not None
        directory = self.crew.run_dir(work.run)
        record = RunRecord(agent="coder-1", run=work.run, kind="work", started=NOW, worktree=str(self.slot))
        directory.create(record)
        files = WorktreeFiles(self.crew, preset, self.notices.append)
        yield files.install(state, work, directory, self.slot).prompt
        remove_worktree_files(self.crew, record)
        (directory.path / "brief.json").unlink(missing_ok=True)


@pytest.fixture
def session(repo: Path) -> Session:
    init(repo, InitOptions(goal="g", no_test=True))
    return Session(find_crew(repo))


SHOWN = (
    b"```md\n"
    + hidden_block("coder-1.1")
    + b"<!-- liza:begin run=coder-1.1 -->\n<!-- liza:end run=coder-1.1 -->\n```\n"
)
FILES = {
    "empty": b"",
    "blank lines": b"\n\n",
    "one blank": b" ",
    "no last newline": b"# Rules",
    "CRLF": b"# Rules\r\n\r\n- x\r\n",
    "byte order mark": b"\xef\xbb\xbf# Rules\n",
    "shows marks": b"# Rules\n\n" + SHOWN + SHOWN,
    "marks at the end": b"<!-- liza:begin run=coder-1.1 -->",
}
WRITE = "printf '\\n- more\\n' >> AGENTS.md"
ABOVE = "{ echo '# Title'; cat AGENTS.md; } > x && cat x > AGENTS.md && rm x"
EDITS = (WRITE, ABOVE, "echo new > AGENTS.md", "true")


@pytest.mark.campaign
def test_a_session_leaves_no_file_dirty_and_git_sees_originals(session: Session) -> None:
    """The same commands with and without a brief give the same commit."""
    for name, content in FILES.items():
        for edit in EDITS if name in ("empty", "shows marks") else EDITS[:1]:
            (session.slot / "AGENTS.md").write_bytes(content)
            git(session.slot, "add", "-A")
            git(session.slot, "commit", "-q", "--allow-empty", "-m", name)
            (session.slot / "CLAUDE.md").unlink(missing_ok=True)
            _run(edit, session.slot)
            expected = (session.slot / "AGENTS.md").read_bytes()
            git(session.slot, "reset", "-q", "--hard")
            with session.running():
                assert git(session.slot, "status", "--porcelain") == "", (name, edit)
                assert (session.slot / "AGENTS.md").read_bytes() != content
                _run(edit, session.slot)
                assert (git(session.slot, "diff", "--stat") == "") == (expected == content), (name, edit)
                git(session.slot, "commit", "-q", "-a", "--allow-empty", "-m", edit)
            committed = subprocess.run(
                ["git", "show", "HEAD:AGENTS.md"], cwd=session.slot, check=True, capture_output=True
            ).stdout
            if content or edit != WRITE:
                assert (name, edit, committed) == (name, edit, expected)
            else:
                assert committed == b"- more\n", "the line above it is the one that ends a block"
            assert (session.slot / "AGENTS.md").read_bytes() == committed
            assert git(session.slot, "status", "--porcelain") == "", (name, edit)


def _run(command: str, directory: Path) -> None:
    subprocess.run(["sh", "-c", command], cwd=directory, check=True)


COPIES = {
    "cp AGENTS.md copy.md": "copy.md",
    "mkdir d; git mv AGENTS.md d/AGENTS.md": "d/AGENTS.md",
    "sed s/liza:end/liza:END/ AGENTS.md > x; cat x > AGENTS.md; rm x": "AGENTS.md",
    "ln AGENTS.md 'a copy.md'": "a copy.md",
}


def test_submit_names_each_file_that_would_publish_a_brief(session: Session) -> None:
    """The filter sees the instructions files only, and complete blocks only."""
    start = commit_all(session.slot, "rules", {"AGENTS.md": RULES})
    task = session.crew.board.read().tasks[0]
    for command, name in COPIES.items():
        git(session.slot, "reset", "-q", "--hard", start)
        with session.running():
            _run(command, session.slot)
            commit_all(session.slot, command)
            work = inspect_worktree(session.crew, task)
            assert work.briefs == (name,), command
            with pytest.raises(Refused, match=f"the commits have the brief of a session in '?{name}") as refused:
                submit(session.crew.board.read(), "a", "coder-1.1", work, NOW)
            path = session.slot / name
            path.write_text(re.sub("(?si)<!-- liza:begin.*liza:end.*?\n", "", path.read_text()))
            _run(refused.value.hint.partition("then: ")[2], session.slot)
            assert inspect_worktree(session.crew, task).briefs == (), command


def test_the_brief_can_be_in_the_prompt_instead_of_files(session: Session) -> None:
    (session.slot / "AGENTS.md").write_text(RULES)
    set_setting(session.crew, "brief", "prompt")
    for preset in (PRESET, replace(PRESET, instructions=("CLAUDE.md",), creates="CLAUDE.md")):
        with session.running(preset) as prompt:
            directory = session.crew.run_dir("coder-1.1")
            assert prompt.endswith(f"\n\n{directory.read_block()}")
            assert "TASK a (try 1 of 10)   d" in prompt
            assert (session.slot / "AGENTS.md").read_text() == RULES
            assert not (session.slot / "CLAUDE.md").exists()
            assert hiding.list_bound_runs(session.crew.git) == ()
    assert session.notices == []
    set_setting(session.crew, "brief", None)
    with session.running() as prompt:
        assert "TASK a" not in prompt
        set_setting(session.crew, "brief", "prompt")
        assert b"TASK a" in (session.slot / "AGENTS.md").read_bytes()
    assert (session.slot / "AGENTS.md").read_text() == RULES
