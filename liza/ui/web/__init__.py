"""The crew on a page for browsers and phones: the screens of `liza ui` as HTML, kept current by a stream of changes.

A process of its own, for people: `page_server.py` starts it, `page_application.py` checks each request and answers it,
`login.py` knows the browsers, `page_feed.py` reads the crew once for all pages, `pages.py` draws them with the
templates, and `page_actions.py` turns forms into actions. Read `page_application.py` first. Decision 041.
"""
