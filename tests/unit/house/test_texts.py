"""What the pages say is what the code does, where that can be compared; and no link leads nowhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_origin, get_type_hints

import msgspec
import pytest

from liza.model.configuration import Config
from liza.model.model import Status
from liza.model.paths import Paths
from liza.model.statuses import ANOMALY_TYPES
from liza.model.transitions import OPEN_STATUSES, TRANSITIONS
from liza.programs.presets import preset, preset_table, program_choice
from liza.programs.session import failure_patterns

ROOT = Path(__file__).parents[3]
STATES = ROOT / "specs" / "architecture" / "state-machines.md"
LAID = ("architecture", "protocols")
FOLDERS = (".", "contracts", ".liza.example", "docs", "docs/*", "specs", "specs/*")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md"))


def _task_states() -> str:
    return STATES.read_text().partition("## A task")[2].partition("\n## ")[0]


def test_the_arrow_table_in_the_specs_has_every_arrow() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([^|]+) \| ([^|]+) \|", _task_states(), re.M)
    told = {}
    for event, sources, target in rows:
        if event in ("event", "add"):
            continue
        start = OPEN_STATUSES if sources == "any open" else {Status(word) for word in sources.split(", ")}
        for source in start:
            told[event, source] = source if target == "same" else Status(target)
    real = {(arrow.verb, source): arrow.target for arrow in TRANSITIONS for source in arrow.sources}
    assert told == real


def test_the_specs_diagram_draws_every_arrow_between_statuses() -> None:
    drawn = set()
    for start, end, label in re.findall(r"^    ([A-Z_]+) --> ([A-Z_]+): (.+)$", _task_states(), re.M):
        drawn |= {(Status(start), Status(end))}
        assert label
    wanted = {
        (source, arrow.target)
        for arrow in TRANSITIONS
        if arrow.verb not in ("supersede", "drop", "edit")
        for source in arrow.sources
    }
    assert drawn == wanted


def test_the_contract_names_every_kind_of_report() -> None:
    text = (ROOT / "contracts" / "MULTI_AGENT_MODE.md").read_text()
    assert [kind for kind in ANOMALY_TYPES if kind not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_an_existing_anchor(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name) if name else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in _anchors(place), f"{page.name}: {target}"


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_pages_for_agents_link_only_to_pages_beside_the_board() -> None:
    for page in [page for page in PAGES if page.parent.name in (*LAID, "contracts")]:
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text()):
            place = (page.parent / target).resolve().relative_to(ROOT)
            assert place.parts[0] == "contracts" or place.parts[1] in LAID, f"{page.name}: {target}"


def test_roles_have_the_anchors_that_the_contract_sends_agents_to() -> None:
    assert {"planner", "coder", "code-reviewer"} <= _anchors(ROOT / "specs" / "architecture" / "roles.md")


def test_every_page_of_an_assignment_is_beside_the_board() -> None:
    text = (ROOT / "liza" / "briefs" / "assignment.py").read_text()
    named = set(re.findall(r"[a-z-]+\.md", text)) - {"assignment.md"}
    assert named
    assert [name for name in sorted(named) if not list((ROOT / "specs").glob(f"*/{name}"))] == []


def _section_about_rows() -> str:
    page = (ROOT / "specs" / "architecture" / "programs.md").read_text()
    return page.partition("## A row of one's own")[2].partition("\n## ")[0]


def test_the_page_about_programs_names_every_row_key() -> None:
    inner = {
        "headless": preset.LaunchMode,
        "interactive": preset.LaunchMode,
        "permissions": preset.Permissions,
        "resume": preset.ResumeStyle,
        "hooks": preset.HookSettings,
        "usage": preset.UsageFormat,
        "journal": preset.ConversationLogFormat,
        "state": preset.StateDirectory,
        "dialogs": preset.Dialog,
        "failures": preset.FailurePattern,
        "acp": preset.AcpSettings,
        "login": preset.LoginSigns,
    }
    plain = {field.encode_name for field in msgspec.structs.fields(preset.Preset)} - {"name", "chosen_model", *inner}
    nested = {f"{name}.{field.encode_name}" for name, kind in inner.items() for field in msgspec.structs.fields(kind)}
    rows = re.findall(r"^\| (`.+?`) \|", _section_about_rows(), re.M)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(named) == len(set(named))
    assert set(named) == {"like", *plain, *nested}


def test_the_example_row_of_the_page_about_programs_works(tmp_path: Path) -> None:
    example = _section_about_rows().partition("```toml\n")[2].partition("```")[0]
    (tmp_path / ".liza").mkdir()
    (tmp_path / ".liza" / "programs.toml").write_text(example)
    table = preset_table.load_presets(Paths(tmp_path), tmp_path)
    row = program_choice.choose_program(None, {}, "coder", Config(), table).preset
    assert (row.name, row.command, row.has_prompts) == ("mybot", str(tmp_path / "tools" / "mybot"), True)
    assert (
        program_choice.choose_program(None, {}, "code-reviewer", Config(), table).spec == "script:./review.sh --strict"
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    found = failure_patterns.find_failure(
        failure_patterns.ModelSigns(row.failures), '{"error":"limit reached, try again in 7 min"}', now
    )
    assert found is not None
    assert (found.kind, found.until) == ("quota", now + timedelta(minutes=7))


def test_the_list_of_how_to_pages_has_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs" / "howto").glob("*.md")} - {"index.md"}
    assert set(re.findall(r"\]\((.+?)\)", (ROOT / "docs" / "howto" / "index.md").read_text())) == pages


def test_every_setting_that_a_page_for_users_names_exists() -> None:
    settings = re.findall(
        r"^\| `([a-z_.]+)` \|", (ROOT / "specs" / "commands.md").read_text().partition("## Settings")[2], re.M
    )
    known = {*settings, *(name.partition(".")[0] for name in settings)}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?<![/\w])(?:config\.|liza config [gs]et )([a-z_]+(?:\.[a-z_]+)?)", page.read_text())
    }
    assert len(named) > 40
    mappings = tuple(f"{name}." for name, kind in get_type_hints(Config).items() if get_origin(kind) is dict)
    assert sorted((page, name) for page, name in named if name not in known and not name.startswith(mappings)) == []
