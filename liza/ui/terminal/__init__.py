"""The picture on a terminal, with keys and dialogs. The only package that imports textual: the extra `liza[ui]`.

Read `picture_app.py` first.
"""
