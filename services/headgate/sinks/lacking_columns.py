"""A change that stops because the table does not have its columns, with their description from the event."""

from collections.abc import Mapping

from headgate.sinks.contract import SinkColumnMissingError

__all__ = ["LackingColumnsError"]


class LackingColumnsError(SinkColumnMissingError):
    """``columns``: each column that the table lacks → the schema's description of its values, empty without one."""

    def __init__(self, message: str, partition: int, offset: int, columns: Mapping[str, str]) -> None:
        super().__init__(message, partition, offset)
        self.columns = dict(columns)
