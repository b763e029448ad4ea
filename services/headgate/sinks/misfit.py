"""The error of a source that does not fit into the table of the sink that it shares with others."""

from headgate.sinks.contract import SinkRefusedError

__all__ = ["MisfitError"]


class MisfitError(SinkRefusedError):
    """The table may be right for other sources: this one's columns, or its discriminator, do not fit into it."""
