"""Reasons why a session at a database cannot be opened. Users of this folder translate them into their own errors."""

__all__ = [
    "DatabaseError",
    "DatabaseRefusedError",
    "DatabaseSilentError",
    "DatabaseUnavailableError",
    "PasswordMissingError",
]


class DatabaseError(Exception):
    """Base class. The message names the option to change, and never quotes an address, which may hold a password."""


class DatabaseRefusedError(DatabaseError):
    """Connecting again does not help until a user changes something: an option, a password, a right, a file."""


class PasswordMissingError(DatabaseRefusedError):
    """The server asks for a password, and none was given."""


class DatabaseUnavailableError(DatabaseError):
    """The server refuses sessions for now, or the connection was lost. Try again later."""


class DatabaseSilentError(DatabaseUnavailableError):
    """The server did not answer, not even with an error of its own."""
