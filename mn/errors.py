"""The one kind of error a user is meant to read: what was wrong, where, and what to do."""


class MNError(Exception):
    """Something the user can mend. Its text is one line; the command line shows it without a traceback."""
