"""What `NAME@MODEL` means, which choice counts, and what is remembered of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model.configuration import Config
from liza.model.errors import ProgramMissing, UsageError
from liza.model.paths import Paths
from liza.programs.presets import command_line, preset_table, program_choice
from liza.programs.presets.preset_table import Presets
from liza.programs.presets.program_choice import ProgramChoice, choose_program, remember_programs, require_choice
from liza.programs.rules.program_spec import ProgramSpec, Transport, add_model, parse_spec
from tests.unit.grounds import ground

H, A = Transport.HEADLESS, Transport.ACP


@pytest.fixture
def table(tmp_path: Path) -> Presets:
    (tmp_path / ".liza").mkdir()
    return preset_table.load_presets(Paths(tmp_path), tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("claude", ProgramSpec("claude")),
        (" claude:acp ", ProgramSpec("claude", transport=A)),
        ("claude@sonnet", ProgramSpec("claude", "sonnet")),
        ("claude@sonnet:acp", ProgramSpec("claude", "sonnet", A)),
        ("opencode@ollama/llama3:8b", ProgramSpec("opencode", "ollama/llama3:8b")),
        ("opencode@ollama/llama3:8b:headless", ProgramSpec("opencode", "ollama/llama3:8b", H)),
        ("pi@x@y", ProgramSpec("pi", "x@y")),
        ("script:./agent.sh --mail a@b", ProgramSpec("script", command="./agent.sh --mail a@b")),
        ("script:", ProgramSpec("script", command="")),
    ],
)
def test_a_spec_names_program_model_transport_and_command(text: str, parts: ProgramSpec) -> None:
    assert parse_spec(text) == parts
    assert parse_spec(str(parts)) == parts


@pytest.mark.parametrize("text", ["", " ", ":acp", "@sonnet", "claude@", "claude@:acp", "claude@--yolo", "claude@a\nb"])
def test_an_empty_program_or_model_is_refused_with_a_command(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(text)
    assert caught.value.hint.startswith("liza programs ")


def test_a_model_is_added_before_the_transport(table: Presets) -> None:
    assert add_model("claude:acp", "sonnet") == "claude@sonnet:acp"
    assert add_model("claude@opus", "sonnet") == "claude@sonnet"
    with pytest.raises(UsageError, match="takes no model"):
        table.resolve(add_model("script:./agent.sh", "sonnet"))


@pytest.mark.parametrize("spec", ["script@x", "amp@x", "amp@x:headless"])
def test_a_program_without_models_refuses_one_with_a_command(table: Presets, spec: str) -> None:
    with pytest.raises(UsageError, match="takes no model") as caught:
        table.resolve(spec)
    assert caught.value.hint == f"liza programs show {spec.partition('@')[0]}"


@pytest.mark.parametrize("interactive", [False, True])
def test_the_model_comes_after_all_options_and_before_a_resume(table: Presets, interactive: bool) -> None:
    for name, row in table.rows.items():
        if not row.model:
            continue
        preset = table.resolve(f"{name}@some/model:7b")
        again = command_line.build_resume_args(preset, "ID") if preset.resume.id else ()
        mode = command_line.select_launch_mode(preset, interactive)
        argv = command_line.build_command(preset, mode, "PROMPT", ground("prompts"), again).argv
        passed = command_line.model_args(preset)
        at = next(at for at in range(len(argv)) if argv[at : at + len(passed)] == passed)
        assert argv[at + len(passed) :][: len(again)] == again
        assert "some/model:7b" in " ".join(passed)
        plain = command_line.build_command(row, mode, "PROMPT", ground("prompts"), again).argv
        assert plain == argv[:at] + argv[at + len(passed) :]


def test_a_model_can_be_passed_by_a_variable(table: Presets) -> None:
    preset = table.resolve('vibe@say "hi"')
    command = command_line.build_command(preset, preset.headless, "PROMPT", ground("prompts"), ())
    assert command.env["VIBE_ACTIVE_MODEL"] == 'say "hi"'
    assert (
        "VIBE_ACTIVE_MODEL"
        not in command_line.build_command(table.rows["vibe"], preset.headless, "", ground("prompts")).env
    )


def test_over_acp_a_model_is_passed_as_the_row_defines(table: Presets) -> None:
    for name, row in table.rows.items():
        if row.acp is None:
            continue
        chosen = command_line.find_settings(table.resolve(f'{name}@m"1:acp'), terminal=False)
        bare = command_line.find_settings(table.resolve(f"{name}:acp"), terminal=False)
        assert chosen is not None
        assert bare is not None
        texts = (*chosen.args, *chosen.env.values(), *chosen.options.values(), chosen.model)
        assert any('m"1' in text or r"m\"1" in text for text in texts), name
        assert "{model}" not in str((chosen.args, chosen.env, chosen.options, chosen.model))
        assert "{model}" not in str((bare.args, bare.env, bare.options, bare.model))


def test_a_row_whose_model_has_no_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".liza").mkdir()
    (tmp_path / ".liza" / "programs.toml").write_text('[programs.mine]\ncommand = "m"\nmodel = ["--model"]\n')
    with pytest.raises(UsageError, match=r"model has no \{model\}"):
        preset_table.load_presets(Paths(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("before", "for_all", "chosen", "after"),
    [
        ({}, "a", {}, {"default": "a"}),
        ({"default": "a", "coder": "b", "coder-2": "c"}, "d", {}, {"default": "d"}),
        ({"default": "a", "coder": "b", "coder-2": "c"}, None, {"coder": "d"}, {"default": "a", "coder": "d"}),
        ({"reviewer": "a", "code-reviewer-1": "b"}, None, {"code-reviewer": "c"}, {"code-reviewer": "c"}),
        ({"default": "a", "coder": "b"}, None, {"coder-2": "c"}, {"default": "a", "coder": "b", "coder-2": "c"}),
        ({"coder": "b"}, "a", {"coder": "c"}, {"default": "a", "coder": "c"}),
    ],
)
def test_a_choice_replaces_what_it_covers_and_no_more(
    before: dict[str, str], for_all: str | None, chosen: dict[str, str], after: dict[str, str]
) -> None:
    assert remember_programs(before, for_all, chosen) == after


def test_the_choice_of_an_agent_is_before_its_role_and_all(table: Presets) -> None:
    config = Config(programs={"default": "codex", "coder": "gemini@x", "coder-2": "pi", "reviewer": "qwen"})
    chosen = {who: choose_program(None, {}, who, config, table) for who in ("coder-1", "coder-2", "code-reviewer-1")}
    assert {who: choice.spec for who, choice in chosen.items()} == {
        "coder-1": "gemini@x",
        "coder-2": "pi",
        "code-reviewer-1": "qwen",
    }
    assert (chosen["coder-1"].model, chosen["coder-2"].model) == ("x", None)
    assert choose_program(None, {}, "planner-1", config, table).spec == "codex"


def _install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


def _choose(table: Presets, config: Config = Config()) -> ProgramChoice:  # noqa: B008
    choice = choose_program(None, {}, "coder-1", config, table)
    require_choice(choice, choice.preset, table)
    return choice


def test_with_nothing_chosen_the_one_installed_program_runs(
    table: Presets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, "codex")
    choice = _choose(table)
    assert (choice.spec, choice.source) == ("codex", program_choice.ONLY_INSTALLED)


def test_of_several_installed_programs_none_is_taken_unasked(
    table: Presets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, "codex", "gemini", "pi")
    with pytest.raises(ProgramMissing, match="codex, gemini and pi are") as caught:
        _choose(table)
    assert caught.value.hint == "liza up --program codex"


def test_a_remembered_program_that_is_gone_names_the_installed_ones(
    table: Presets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, "gemini", "pi")
    with pytest.raises(ProgramMissing, match=r"codex.*installed: gemini, pi") as caught:
        _choose(table, Config(programs={"default": "codex@gpt"}))
    assert caught.value.hint.endswith(", or: liza up --program gemini")
