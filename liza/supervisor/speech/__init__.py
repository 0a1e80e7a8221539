"""What a supervisor says in its sessions: it writes messages (`session_messages.py`) and carries them to the program.

Read `message_carrier.py` first: it types a message into a terminal, and records whether the program took it.
"""
