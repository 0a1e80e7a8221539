"""A brief in an instructions file is invisible to git, and nobody's work is staged, hidden or lost for it."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pytest

from liza.git import filter_program as _filter
from liza.git import hiding
from liza.git.runner import Git
from liza.model.errors import Refused
from tests.conftest import KEY, commit_all, git, hidden_block

BLOCK = hidden_block("coder-1.7")


@pytest.fixture
def tracked(repo: Path) -> Path:
    """AGENTS.md, tracked, without a final newline; the filter installed and bound for coder-1.7."""
    commit_all(repo, "instructions", {"AGENTS.md": "Be brief."})
    hiding.install_filter(Git(repo))
    hiding.bind_filter(Git(repo), ["AGENTS.md", ".github/copilot-instructions.md"], "coder-1.7", KEY)
    return repo / "AGENTS.md"


def add(path: Path) -> None:
    path.write_bytes(BLOCK + (path.read_bytes() if path.exists() else b""))


def status(repo: Path) -> str:
    return git(repo, "status", "--porcelain")


def test_git_never_shows_a_block_and_it_is_removed_completely(repo: Path, tracked: Path) -> None:
    add(tracked)
    assert hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    assert status(repo) == ""
    (repo / "AGENTS.md").write_bytes(tracked.read_bytes() + b" And kind.")
    git(repo, "commit", "-qam", "an agent's own change")
    assert git(repo, "show", "HEAD:AGENTS.md") == "Be brief. And kind."
    assert hiding.read_without_blocks(Git(repo), "AGENTS.md") == b"Be brief. And kind."
    tracked.write_bytes(hiding.remove_blocks(Git(repo), tracked.read_bytes()))
    hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    hiding.unbind_filter(Git(repo), "coder-1.7")
    assert status(repo) == ""


def test_crlf_files_stay_as_they_are(repo: Path, tracked: Path) -> None:
    tracked.write_bytes(b"one\r\ntwo\r\n")
    git(repo, "-c", "core.autocrlf=false", "commit", "-qam", "crlf")
    add(tracked)
    assert hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    assert status(repo) == ""
    assert Git(repo).raw("cat-file", "blob", ":AGENTS.md") == b"one\r\ntwo\r\n"


def test_index_is_refreshed_only_for_exactly_text_outside_the_block(repo: Path, tracked: Path) -> None:
    tracked.write_text("Work of the agent.")
    add(tracked)
    assert not hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    assert git(repo, "diff", "--cached") == ""
    assert not hiding.refresh_index_entry(Git(repo), "UNKNOWN.md")
    (repo / "UNKNOWN.md").write_text("x")
    assert not hiding.refresh_index_entry(Git(repo), "UNKNOWN.md")
    assert git(repo, "diff", "--cached") == ""


@pytest.mark.parametrize("mark", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge"])
def test_an_unfinished_merge_or_rebase_keeps_its_index_and_files(repo: Path, tracked: Path, mark: str) -> None:
    (repo / "README.md").write_text("resolved\n")
    git(repo, "add", "README.md")
    staged = git(repo, "ls-files", "-s")
    if mark == "rebase-merge":
        (repo / ".git" / mark).mkdir()
    else:
        (repo / ".git" / mark).write_text(git(repo, "rev-parse", "HEAD") + "\n")
    for change in (add, lambda path: path.write_text("Be brief.")):
        change(tracked)
        assert hiding.refresh_index_entry(Git(repo), "AGENTS.md")
        assert (git(repo, "ls-files", "-s"), status(repo)) == (staged, "M  README.md")


def test_a_conflict_in_the_file_is_not_resolved(repo: Path, tracked: Path) -> None:
    for name, text in (("a", "one\n"), ("b", "two\n")):
        git(repo, "checkout", "-q", "-b", name, "main")
        tracked.write_text(text)
        git(repo, "commit", "-qam", name)
    Git(repo).run("merge", "a")
    (repo / ".git" / "MERGE_HEAD").unlink()
    add(tracked)
    assert not hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    assert Git(repo).names("ls-files", "-u", "-z")


def test_bindings_of_several_runs_coexist_with_a_persons_lines(repo: Path, tracked: Path) -> None:
    attributes = repo / ".git" / "info" / "attributes"
    attributes.write_text("*.png binary\n" + attributes.read_text() + "*.gif binary")
    hiding.bind_filter(Git(repo), ["AGENTS.md"], "coder-2.1", "fedcba9876543210")
    hiding.bind_filter(Git(repo), ["AGENTS.md"], "coder-2.1", "fedcba9876543210")
    hiding.hide_files(Git(repo), ["NOTES[1].md"], "coder-2.1")
    assert hiding.list_bound_runs(Git(repo)) == ("coder-1.7", "coder-2.1")
    assert hiding.list_bound_files(Git(repo)) == (".github/copilot-instructions.md", "AGENTS.md", "NOTES[1].md")
    hiding.unbind_filter(Git(repo), "coder-1.7")
    assert git(repo, "check-attr", "filter", "AGENTS.md").endswith(": liza-brief")
    for _ in range(2):
        hiding.unbind_filter(Git(repo), "coder-2.1")
        hiding.unhide_files(Git(repo), "coder-2.1")
    assert git(repo, "check-attr", "filter", "AGENTS.md").endswith(": unspecified")
    assert attributes.read_text() == "*.png binary\n*.gif binary\n"


def test_many_runs_binding_at_once_lose_none(repo: Path, tracked: Path) -> None:
    context = multiprocessing.get_context("fork")
    runs = [f"coder-{n}.1" for n in range(6)]
    processes = [context.Process(target=hiding.bind_filter, args=(Git(repo), ["AGENTS.md"], run, KEY)) for run in runs]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert hiding.list_bound_runs(Git(repo)) == tuple(sorted(["coder-1.7", *runs]))


def test_only_the_file_at_the_top_is_bound_and_hidden(repo: Path, tracked: Path) -> None:
    hiding.hide_files(Git(repo), ["CLAUDE.md"], "coder-1.7")
    (repo / "docs").mkdir()
    for name in ("CLAUDE.md", "docs/CLAUDE.md"):
        (repo / name).write_text("x")
    assert status(repo) == "?? docs/"
    assert git(repo, "check-attr", "filter", "docs/AGENTS.md").endswith(": unspecified")


def test_a_file_that_another_filter_works_on_is_refused(repo: Path, tracked: Path) -> None:
    (repo / ".gitattributes").write_text("CLAUDE.md filter=git-crypt\n")
    with pytest.raises(Refused, match=r"CLAUDE\.md goes through a filter"):
        hiding.bind_filter(Git(repo), ["AGENTS.md", "CLAUDE.md"], "coder-3.1", KEY)
    assert hiding.list_bound_runs(Git(repo)) == ("coder-1.7",)
    assert hiding.find_bindable(Git(repo), ["AGENTS.md", "CLAUDE.md"]) == ("AGENTS.md",)
    with pytest.raises(Refused):
        hiding.bind_filter(Git(repo), ["../AGENTS.md"], "coder-3.1", KEY)


def test_liza_works_from_a_path_with_spaces_and_uninstalls_completely(
    repo: Path, tracked: Path, tmp_path: Path
) -> None:
    program = tmp_path / "a place" / "it's.py"
    program.parent.mkdir()
    program.write_text(f"import runpy\nrunpy.run_path({_filter.__file__!r}, run_name='__main__')\n")
    hiding.install_filter(Git(repo), (sys.executable, "-I", "-S", program))
    add(tracked)
    assert hiding.refresh_index_entry(Git(repo), "AGENTS.md")
    assert status(repo) == ""
    tracked.write_bytes(hiding.read_without_blocks(Git(repo), "AGENTS.md"))
    for _ in range(2):
        hiding.uninstall_filter(Git(repo))
    assert "liza" not in (repo / ".git" / "config").read_text()
    assert not (repo / ".git" / "info" / "attributes").exists()
    assert git(repo, "diff") == ""


def test_lizas_directory_is_kept_out_and_let_in_again(repo: Path) -> None:
    (repo / ".liza").mkdir()
    (repo / ".liza" / "f").write_text("x")
    before = (repo / ".git" / "info" / "exclude").read_text()
    for _ in range(2):
        hiding.ignore_liza_dirs(Git(repo))
    assert status(repo) == ""
    hiding.unignore_liza_dirs(Git(repo))
    assert status(repo) == "?? .liza/"
    assert (repo / ".git" / "info" / "exclude").read_text() == before


def test_a_section_shortened_by_hand_is_left_to_its_author(tmp_path: Path) -> None:
    path = tmp_path / "attributes"
    path.write_text("# liza:begin run=coder-1.1\n/A filter=liza-brief\n*.png binary\n")
    hiding.write_section(path, "run=coder-1.2", ["/B filter=liza-brief"])
    assert list(hiding.read_sections(path)) == ["run=coder-1.2"]
    hiding.remove_section(path, "run=coder-1.2")
    hiding.remove_section(path, "run=coder-1.1")
    assert path.read_text() == "# liza:begin run=coder-1.1\n/A filter=liza-brief\n*.png binary\n"


def test_a_linked_exclude_file_of_a_person_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("*.o\n")
    (tmp_path / "exclude").symlink_to("real")
    hiding.write_section(tmp_path / "exclude", "crew", ["/.liza"])
    assert (tmp_path / "exclude").is_symlink()
    assert hiding.read_sections(tmp_path / "real") == {"crew": ("/.liza",)}
