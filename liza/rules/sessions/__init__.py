"""What a supervisor does next with the session of its agent.

`decide.decide` maps a `Situation` of `session_facts.py` to one action of `actions.py`; the supervisor loop carries it
out. `session_ends.py` says why sessions are ended, how they end, and how each end counts. The other modules judge one
aspect each: tool calls in a loop (`loop_detection.py`), a model that does not answer (`model_silence.py`), messages to
deliver (`message_rules.py`), tokens and money spent (`spending.py`), run directories to archive (`retention.py`). Two
hold small states with one transition each: times of a session (`session_watch.py`), and rests after failures
(`rests.py`).
`healing_rules.py` says what `liza up` or its keeper does about agents whose supervisor is gone.
Read `decide.py` first, with `actions.py` beside it.
"""
