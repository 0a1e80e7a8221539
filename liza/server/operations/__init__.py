"""The operations of the worker API: path, types, who may call, and the function that is called.

`operation_table.py` lists them, `verb_operations.py` those that are verbs of the command line; `calls.py` has the types
of an operation and of a call; `openapi.py` makes the OpenAPI document, `metrics_text.py` the figures for Prometheus.
Read `operation_table.py` first.
"""
