"""The declarations of all commands: options, help text, the call of one verb, the output.

A command is declared with `declare.declare_command`.
To add a command, follow the five steps for a verb in CONTRIBUTING.md.
Read `steer_commands.py` first.
"""
