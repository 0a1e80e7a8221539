"""The event stream of a run. Read `event_stream.py` first."""
