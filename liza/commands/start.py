"""``liza start``: do one task from one sentence."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.commands.init import Facts, find_permissions_question, print_program_faults
from liza.commands.up import Steps, VerboseOption
from liza.crew.caller import require_person
from liza.crew.crew import find_crew, find_crew_or_none
from liza.landing.remotes import record_first_origin
from liza.model.value_classes import replace
from liza.printing import printing
from liza.project.baseline import InitOptions
from liza.project.init import init as init_crew
from liza.supervisor import start as crews
from liza.tasks.rules.backlog import check_sentence
from liza.tasks.rules.picking import first_able_coder
from liza.tasks.task import add_sentence_task, refuse_new_copies

app = create_app()


@declare_command(
    app,
    "start",
    'liza start "The invoice shows the due date" --program codex',
    process=Process.DIRECT,
    position=Position(Heading.START, 5),
)
def start(
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="What is to be done, in one sentence.")],
    program: Annotated[
        list[str] | None,
        typer.Option("--program", metavar="[WHO=]PROGRAM", help="As in `liza up`; default: the last choice."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The model of the coder and the reviewer: as PROGRAM@MODEL."),
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--tmux", help="Run each session in a terminal, for `liza attach`.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Without a crew: let the program skip its permission prompts, unasked."),
    ] = False,
    copy: Annotated[
        list[str] | None,
        typer.Option("--copy", metavar="FILE", help="Without a crew: as in `liza init`; repeatable."),
    ] = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> int:
    """Do one task from one sentence: `liza init` if there is no crew, add the task, then one coder and one reviewer.

    The command ends when the task is closed and no other one goes on without you. Its document is in .liza/specs. If
    the task waits for you, the exit code is 76, and the last lines say for what. Repeated with the same sentence, it
    continues the open task. If the crew runs already, only the task is added, and its programs stay as they are.
    """
    sentence = check_sentence(sentence)
    default_program, programs = crews.parse_programs(program or [])
    crew = find_crew_or_none()
    options = crews.UpOptions(
        planners=0, program=default_program, programs=programs, terminal=terminal, verbose=verbose
    )
    typed = f"liza start {shlex.quote(sentence)} --program"
    if model is not None:
        options = crews.add_model(crew, options, model, typed)
    if crew is None:
        new_crew = InitOptions(
            goal=sentence,
            permissions="bypass" if yes else None,
            program=options.program,
            copied_files=tuple(copy or ()),
        )
        with Facts(as_json) as facts:
            question = find_permissions_question(as_json)
            init_crew(Path.cwd(), new_crew, facts.say, question, record_first_origin, facts.begin)
        crew = find_crew()
        if not as_json:
            print_program_faults(crew)
    else:
        refuse_new_copies(crew, copy or ())
    require_person(crew, planner=False)
    is_running = crews.runs_coder(crew)
    has_choice = options.program is not None or bool(options.programs)
    if has_choice or not is_running:
        crews.check_programs(crew, options, typed)  # First: a mistyped program must leave no task.
    added = add_sentence_task(crew, sentence)
    task = crew.board.read().task(str(added.task))
    # An earlier coder may have failed the task: it is not given to that one again.
    coders = first_able_coder(task) if task is not None else 1
    options = replace(options, coders=coders, exit_when_done=True, task=added.task)
    steps = Steps(as_json)
    steps("", added.message, crew.clock.now())
    printing.print_remarks(added)
    if crew.is_supervised(f"coder-{coders}") or (coders == 1 and is_running):
        crews.remember(crew, options)
        later = "the program is for its next start; " if has_choice else ""
        steps("", f"{later}the crew runs already: liza status", crew.clock.now())
        return 0
    return crews.up(crew, options, steps)
