"""Headgate keeps tables in step: change events from Kafka go to tables, exactly once, from one writer each.

Every service rebuilds its state by replaying compacted Kafka topics, and every write into a sink is fenced by
the epoch of the assignment it was made under. Start reading at ``records`` (the records on the topics), ``runtime``
(the role loop), then ``coordinator`` and ``agent`` (two machines, each in its ``core``) and ``sinks`` (the fence).
"""

from typing import Final

__all__ = ["SCHEMA_VERSION", "__version__"]

__version__: Final = "0.2.0"

SCHEMA_VERSION: Final = 2
"""Newest schema level that this build reads and can write (docs/adr/0008). A role that meets a newer one ends."""
