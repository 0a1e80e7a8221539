"""The event stream of a run. `delivery_record.py` keeps which events were sent.

Read `event_stream.py` first.
"""
