"""How tests of both kinds of databases write copied lines into a table that is being written."""

from collections.abc import Mapping
from contextlib import closing

from headgate.records.control import Positions
from headgate.sinks.contract import Claim
from headgate.sinks.relational.mysql import MysqlSink
from headgate.sinks.relational.postgresql import PostgresSink
from headgate.sinks.row_copying import CopiedRows, CopiedTexts, CopyMark, RowCopyingWriter


def copy_texts(
    sink: PostgresSink | MysqlSink, claim: Claim, positions: Positions, semantics: Mapping[str, str], texts: CopiedTexts
) -> None:
    """In one batch; all of the rows must be written."""
    with closing(sink.writer()) as writer:
        assert isinstance(writer, RowCopyingWriter)
        applied = writer.copy(
            CopiedRows(
                claim=claim,
                positions=positions,
                key=("id", "small"),
                upserts=[],
                deletes=[],
                semantics=semantics,
                mark=CopyMark(request="r", upto=("2", "0")),
                texts=texts,
            )
        )
        assert applied.upserts == texts.count
