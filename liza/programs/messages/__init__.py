"""Messages to an agent, stored until there is evidence that they were read.

Offers: the inbox, one file per message, safe after a crash (`inbox`), and the ways into a running session, by hook or
by terminal (`channel`). When a message is sent, and how often, is decided in `rules/sessions/message_rules.py`.
Read `inbox.py` first.
"""
