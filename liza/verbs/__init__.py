"""One module for each word of the command line: `submit.py` is `liza submit`.

A verb identifies its caller (`liza.crew.caller`), changes the board in `Crew.change` with a rule of `liza.rules`, and
returns a `Result` or a mapping for `--json`. It prints nothing. Five modules are parts of a verb: `all_logs` of logs,
`change_stream` of watch, `claim_review` of claim, `program_trial` of programs, `show_task` of task.
To add a verb: write the module here, declare it in `liza/cli/commands/`, list it in `liza/cli/command_table.py`.
Read `block.py` first, then `claim.py` and `merge.py`.
"""
