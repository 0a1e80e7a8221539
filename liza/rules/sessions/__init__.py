"""What a supervisor does next with the session of its agent.

`decide.decide` maps a `Situation` of `session_facts.py` to one action of `actions.py`; the supervisor loop carries it
out. `session_ends.py` says why sessions are ended, how they end, and how each end counts. The other modules judge one
aspect of a session each: tool calls in a loop, a model that does not answer, messages to deliver, tokens and money
spent, run directories to archive.
Read `decide.py` first, with `actions.py` beside it.
"""
