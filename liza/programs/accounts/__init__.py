"""Accounts of agent programs: which one a session uses, where its secret comes from, and until when it is limited.

The person's file `~/.config/liza/accounts.toml` lists them (`account_file`); a secret is read from a variable or a
command when a session starts, and stays in memory (`secret_source`). What is known of each account is in one file of
the user, shared by all crews (`account_records`). The rules are in `rules/worker_api/account_rules.py`.
Read `account_choice.py` first.
"""
