"""Messages to an agent, stored until there is evidence that they were read.

Offers: the inbox, one file per message, safe after a crash (`inbox`, and `inbox_reader` for a process that reads it
often), the stream of a runtime (`prompt_stream`), and the log of what was tried (`delivery_log`). When a message is
sent, and how often, is decided in `rules/sessions/message_rules.py`. Read `inbox.py` first.
"""
