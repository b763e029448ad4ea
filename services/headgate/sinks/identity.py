"""One spelling for one sink: a feed's ``sink.dsn`` in the form that every feed into the same database has.

Owners compare the text to refuse a second feed on a table before anything is written. Two spellings that this cannot
tell to be one database (a host's alias) are caught later, by the sink itself, which holds the table for one feed.
"""

from psycopg.conninfo import make_conninfo

from headgate.config.feed import SinkSpec
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.relational.mysql.address import parse_address
from headgate.sinks.relational.postgresql.address import parse_parameters

__all__ = ["same_sink"]

_DEFAULTS = {"port": "5432"}
"""What libpq takes when nothing is said; left out and written out must be the same."""


def same_sink(spec: SinkSpec) -> SinkSpec:
    """``spec`` with its address in the one form: keywords, sorted, defaults written out.

    Raises SinkRefusedError for an address that is none, or that holds a password: feeds stand on a topic that everybody
    with access to the cluster can read.
    """
    spelled = _mysql(spec.dsn) if spec.type == "mysql" else _postgresql(spec.dsn)
    return spec.model_copy(update={"dsn": spelled})


def _refuse_password() -> SinkRefusedError:
    return SinkRefusedError(
        "sink.dsn holds a password, and feeds stand on a topic where others can read them: put it into a file on "
        "coordinators and agents, and name that in sink.password_file"
    )


def _mysql(dsn: str) -> str:
    address = parse_address(dsn)
    if address.password is not None:
        raise _refuse_password()
    return str(address)


def _postgresql(dsn: str) -> str:
    given = parse_parameters(dsn)
    if given.get("password"):
        raise _refuse_password()
    parameters = {**_DEFAULTS, **given}
    if (host := parameters.get("host")) is not None:
        parameters["host"] = host.lower() if not host.startswith("/") else host.rstrip("/")
    return make_conninfo("", **dict(sorted(parameters.items())))
