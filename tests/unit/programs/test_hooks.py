"""What a program says through a hook, what that means, and what it is answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liza.model.errors import UsageError
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_events import TEMPLATES, HookEvent, HookTemplate, fill_form, list_providers, load_template
from liza.programs.hooks.hook_install import blank_comments, merge_objects
from liza.programs.presets.preset_table import BUILT_IN, read_layer
from liza.programs.session.run_directory import Turn
from liza.text.brief_marks import begin_mark, end_mark, strip_blocks
from tests.conftest import KEY

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL = sorted(list_providers())


def heard(provider: str, event: str, **said: Any) -> hook_events.ReceivedEvent:
    found = hook_events.parse_event(load_template(provider), event, said)
    assert found is not None
    return found


@pytest.mark.parametrize("provider", ALL)
def test_template_names_what_was_verified_and_how_it_is_installed(provider: str) -> None:
    found = load_template(provider)
    assert found.verified
    assert found.files or found.each_args
    for file in found.files:
        assert bool(file.name) != bool(file.worktree)
        assert not Path(file.name or file.worktree).is_absolute()
        assert not file.script or (TEMPLATES / file.script).is_file()


@pytest.mark.parametrize("provider", ALL)
def test_template_knows_tools_turn_ends_and_text_for_the_model(provider: str) -> None:
    events = load_template(provider).events.values()
    assert {"tool", "idle", "busy"} <= {event.means for event in events}
    assert any(event.context for event in events)
    assert any(event.push for event in events)


@pytest.mark.parametrize("provider", ALL)
def test_an_answer_has_any_text_unchanged(provider: str) -> None:
    text = 'say "hi" \\ {event} {text}\nü <!-- -->'
    for name in load_template(provider).events:
        one = heard(provider, name)
        for answer in (hook_events.context_reply(one, text), hook_events.push_reply(one, text)):
            assert answer.code == 0
            assert not answer.out or json.dumps(text, ensure_ascii=False)[1:-1] in answer.out
        told = hook_events.refusal_reply(one, text)
        assert (told.code == 2 and told.err == text + "\n") or json.loads(told.out)


def test_every_program_with_hooks_in_the_table_has_a_template() -> None:
    named = {row.get("hooks", {}).get("provider") for row in read_layer(BUILT_IN, "built in").rows.values()}
    assert named - {None, ""} == list_providers()


def test_unknown_hooks_are_no_file_name() -> None:
    for name in ("unheard-of", "../templates/codex", "", "codex.toml"):
        with pytest.raises(UsageError):
            load_template(name)


def test_an_event_that_the_template_does_not_know_means_nothing() -> None:
    assert hook_events.parse_event(load_template("codex"), "Unheard", {}) is None


@pytest.mark.parametrize(
    ("provider", "event", "said", "means"),
    [
        ("claude", "SessionStart", {"source": "startup"}, "started"),
        ("claude", "SessionStart", {"source": "compact"}, "compaction"),
        ("codex", "PreToolUse", {"tool_name": "Bash"}, "tool"),
        ("gemini", "AfterAgent", {}, "idle"),
        ("copilot", "userPromptSubmitted", {}, "busy"),
        ("vibe", "post_tool", {}, "busy"),
        ("cursor", "stop", {}, "idle"),
        ("gemini", "PreCompress", {"trigger": "manual"}, "compaction"),
        ("gemini", "PreCompress", {"trigger": "auto"}, "busy"),
        ("cursor", "preCompact", {}, "compaction"),
        ("pi", "session_compact", {}, "compaction"),
        ("opencode", "session.deleted", {}, "stopped"),
    ],
)
def test_what_a_program_calls_it_is_turned_into_ours(provider: str, event: str, said: Any, means: str) -> None:
    assert heard(provider, event, **said).meaning == means


def test_the_conversation_id_is_read_only_as_text() -> None:
    assert heard("copilot", "agentStop", sessionId="s-1").session == "s-1"
    assert heard("codex", "Stop", session_id="s-2").session == "s-2"
    assert heard("codex", "Stop", session_id={"a": 1}).session is None


def turn(phase: str, session: str | None = None, **more: Any) -> Turn:
    return Turn(time=NOW, phase=phase, session=session, **more)


def test_a_turn_goes_from_start_to_idle_counting_its_tools() -> None:
    now: Turn | None = None
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PreToolUse", "Stop"):
        now = hook_events.next_turn(now, heard("codex", event, session_id="a"), NOW)
    assert now == turn("idle", "a", tools=2)
    assert hook_events.next_turn(now, heard("codex", "SessionEnd"), NOW) == turn("stopped", "a", tools=2)


def test_a_nested_program_gets_nothing_meant_for_the_session() -> None:
    busy = turn("busy", "outer")
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        assert hook_events.next_turn(busy, heard("codex", event, session_id="inner"), NOW) is None


def test_a_helper_of_a_program_gets_no_messages() -> None:
    assert hook_events.next_turn(None, heard("vibe", "post_agent", session_id="b", parent_session_id="a"), NOW) is None


def test_a_new_conversation_between_two_turns_is_the_runs_own() -> None:
    after = hook_events.next_turn(turn("idle", "old"), heard("claude", "SessionStart", session_id="new"), NOW)
    assert after == turn("started", "new")


def test_a_compaction_within_a_turn_leaves_it_busy() -> None:
    after = hook_events.next_turn(
        turn("busy", "a"), heard("claude", "SessionStart", session_id="a", source="compact"), NOW
    )
    assert after == turn("busy", "a")


@pytest.mark.parametrize("phase", ["started", "busy", "idle"])
def test_a_compaction_begins_and_ends_no_turn(phase: str) -> None:
    after = hook_events.next_turn(turn(phase, "a"), heard("gemini", "PreCompress", session_id="a"), NOW)
    assert after == turn(phase, "a")


def test_a_brief_that_a_program_would_cut_is_short() -> None:
    short = HookTemplate(verified="x", limit=10)
    assert hook_events.choose_brief_text(short, "0123456789", "there") == "0123456789"
    assert hook_events.choose_brief_text(short, "0123456789+", "there") == "there"


def test_an_answer_that_an_event_cannot_carry_is_silence() -> None:
    one = hook_events.ReceivedEvent(HookEvent(means="idle"), "idle")
    assert hook_events.context_reply(one, "x") == hook_events.push_reply(one, "x") == hook_events.NO_REPLY
    assert hook_events.context_reply(heard("codex", "SessionStart"), "") == hook_events.NO_REPLY


def test_all_named_fields_of_a_form_are_filled() -> None:
    form = {"{event}": [{"run": "{command} {other}"}], "n": 1, "all": "{list}"}
    got = fill_form(form, event="Stop", command="liza hook", list=[1, 2])
    assert got == {"Stop": [{"run": "liza hook {other}"}], "n": 1, "all": [1, 2]}


def test_a_rows_settings_and_those_of_hooks_coexist() -> None:
    below = {"plugin": ["a"], "permission": {"edit": "allow"}, "x": 1}
    above = {"plugin": ["b"], "permission": {"bash": "allow"}, "x": 2}
    assert merge_objects(below, above) == {
        "plugin": ["a", "b"],
        "permission": {"edit": "allow", "bash": "allow"},
        "x": 2,
    }


def test_comments_are_blanked_but_texts_resembling_them_are_not() -> None:
    said = '{"a": "// no", /* b\n */ "c": "/* \\" */"} // end'
    bare = blank_comments(said)
    assert len(bare) == len(said)
    assert json.loads(bare) == {"a": "// no", "c": '/* " */'}


@pytest.mark.parametrize("sign", ["// ", "//", "  // ", ""])
def test_a_mark_after_a_comment_sign_still_counts(sign: str) -> None:
    begin, end = begin_mark("coder-1.1", KEY), end_mark("coder-1.1", KEY)
    text = f'{{\n  "a": 1\n{sign}{begin}\n, "b": 2\n{sign}{end}\n  }}\n'.encode()
    assert strip_blocks(text, (KEY,)) == b'{\n  "a": 1\n  }\n'
