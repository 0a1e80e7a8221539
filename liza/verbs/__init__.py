"""The verbs of the command line: one module for each verb, one function that carries it out.

A verb identifies its caller (`liza.crew.caller`), changes the board in `Crew.change` with a rule of `liza.rules`, and
returns a `Result` or a mapping for `--json`. It prints nothing; `liza.cli` does.
Modules that are no verb: `change_stream.py` (wait for board changes), `all_logs.py`, `program_trial.py`.
Read `block.py` first, then `claim.py` and `merge.py`.
"""
