"""Briefs: the block in an instructions file, the assignment, the beacon, and messages to a running session.

`brief_context.py` gathers the facts, `brief_writer.py` writes the short block, the beacon and the prompt,
`assignment.py` the full assignment, `instructions_file.py` places and removes the block. `inbox.py` keeps each message
until there is evidence that it was read.
Read `brief_writer.py` first, then `inbox.py`.
"""
