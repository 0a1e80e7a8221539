"""One module for each command: `submit.py` is `liza submit`. `liza up` and `liza demo` are packages of their own.

A verb identifies its caller (`liza.crew.caller`), reads the board, or changes it in `Crew.change` with a rule of
`liza.rules`, and returns a `Result` or a mapping for `--json`. It prints nothing. Six modules are parts of a command:
`all_logs` of logs, `change_stream` of watch, `claim_review` of claim, `program_trial` of programs, `sentence_task` of
start, `show_task` of task.
To add a verb, follow the five steps in CONTRIBUTING.md.
Read `block.py` first, then `claim.py` and `merge.py`.
"""
