"""A session that is not opened: what failed, with the place and the user, why, and what to do. Never raw lines."""

from typing import Final

import psycopg
import pymysql
import pytest

from headgate.databases.address import AddressOptions, Target
from headgate.databases.errors import (
    DatabaseError,
    DatabaseRefusedError,
    DatabaseSilentError,
    DatabaseUnavailableError,
    PasswordMissingError,
)
from headgate.databases.mysql.address import address_of as mysql_address
from headgate.databases.mysql.session import MysqlSession, open_session
from headgate.databases.mysql.unopened import unopened_mysql
from headgate.databases.postgresql.address import address_of as postgresql_address
from headgate.databases.postgresql.session import open_connection
from headgate.databases.postgresql.unopened import unopened_postgresql

OPTIONS: Final = AddressOptions("--source", "--source-password-file", "source")
AT: Final = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '


@pytest.mark.parametrize(
    ("said", "error", "why", "advice"),
    [
        (f"{AT}Connection refused\n\tIs the server running?", DatabaseSilentError, "(Connection refused)", "Start"),
        ("failed to resolve host 'db': [Errno -2] No", DatabaseSilentError, "cannot find the host", "DNS"),
        ("connection timeout expired", DatabaseSilentError, "the host does not answer", "firewalls"),
        (
            'connection is bad: connection to server on socket "/tmp/.s.PGSQL.5432" failed: No such file or directory',
            DatabaseSilentError,
            'on socket "/tmp/.s.PGSQL.5432"',
            "Start the server",
        ),
        (
            f'{AT}FATAL:  password authentication failed for user "me"\nconnection to server at "10.0.0.7", port …',
            DatabaseRefusedError,
            ': password authentication failed for user "me". ',
            "the password (--source-password-file)",
        ),
        (f"{AT}fe_sendauth: no password supplied", PasswordMissingError, "(no password supplied)", "into a file"),
        (f'{AT}FATAL:  Peer authentication failed for user "me"', DatabaseRefusedError, "Peer", "pg_hba.conf"),
        (f'{AT}FATAL:  no pg_hba.conf entry for host "10.0.0.1"', DatabaseRefusedError, "no pg", "pg_reload_conf"),
        (f"{AT}server does not support SSL, but SSL was required", DatabaseRefusedError, "SSL", "ssl = on"),
        (f"{AT}SSL error: certificate verify failed", DatabaseRefusedError, "verify failed", "sslrootcert"),
        (
            'connection is bad: private key file "/k" has group or world access; file must have permissions u=rw',
            DatabaseRefusedError,
            "world",
            "chmod 600",
        ),
        (f'{AT}root certificate file "/x" does not exist', DatabaseRefusedError, '"/x"', "sslrootcert"),
        (f'{AT}FATAL:  role "me" is not permitted to log in', DatabaseRefusedError, "log in", 'ALTER ROLE "me" LOGIN'),
        (f'{AT}FATAL:  role "me" does not exist', DatabaseRefusedError, "role", 'CREATE ROLE "me"'),
        (f'{AT}FATAL:  database "shop" does not exist', DatabaseRefusedError, "shop", 'CREATE DATABASE "shop"'),
        (f'{AT}FATAL:  permission denied for database "shop"', DatabaseRefusedError, "denied", "GRANT CONNECT"),
        (f"{AT}FATAL:  sorry, too many clients already", DatabaseUnavailableError, "too many", "max_connections"),
        (f'{AT}FATAL:  too many connections for role "me"', DatabaseUnavailableError, "too many", "CONNECTION LIMIT"),
        (f"{AT}FATAL:  the database system is starting up", DatabaseUnavailableError, "starting", "Wait"),
        (f"{AT}received invalid response to SSL negotiation: H", DatabaseSilentError, ": H. ", "of a PostgreSQL"),
        (f"{AT}server closed the connection unexpectedly", DatabaseSilentError, "closed", "of a PostgreSQL"),
        (
            'connection is bad: invalid sslmode value: "no"',
            DatabaseRefusedError,
            ': invalid sslmode value: "no"',
            "Cor",
        ),
        (f"{AT}FATAL:  Passwort-Authentifizierung", DatabaseUnavailableError, "Passwort-Auth", "Read the server's log"),
        (f"{AT}something else", DatabaseSilentError, ": something else. ", "Check host and port in --source"),
    ],
)
def test_postgresql(said: str, error: type[DatabaseError], why: str, advice: str) -> None:
    target = Target("postgresql://me@10.0.0.7/shop", options=OPTIONS)
    found = unopened_postgresql(psycopg.OperationalError(said), target, postgresql_address(target.dsn, OPTIONS))
    check(found, error, "database shop at 10.0.0.7:5432, user me", why, advice)
    assert AT not in str(found)


def of_mysql(number: int, said: str, cause: Exception | None = None) -> pymysql.Error:
    found = pymysql.err.OperationalError(number, said)
    if cause is not None:
        found.original_exception = cause  # type: ignore[attr-defined]  # as PyMySQL does
    return found


@pytest.mark.parametrize(
    ("given", "error", "why", "advice"),
    [
        (
            of_mysql(2003, "Can't connect ([Errno 111] Connection refused)", ConnectionRefusedError(111, "refused")),
            DatabaseSilentError,
            "no server listens there (refused)",
            "Start the server",
        ),
        (of_mysql(2003, "Can't connect (timed out)"), DatabaseSilentError, "does not answer", "firewalls"),
        (of_mysql(2003, "([Errno -2] Name or service not known)"), DatabaseSilentError, "cannot find", "DNS"),
        (of_mysql(1045, "Access denied (using password: YES)"), DatabaseRefusedError, "denied", "the password (--"),
        (of_mysql(1045, "Access denied (using password: NO)"), PasswordMissingError, "asks for", "into a file"),
        (of_mysql(1049, "Unknown database 'shop'"), DatabaseRefusedError, "; error 1049", "CREATE DATABASE `shop`"),
        (
            of_mysql(1044, "Access denied for user 'me'@'10.%' to database 'shop'"),
            DatabaseRefusedError,
            "denied",
            "run as an administrator: GRANT SELECT ON `shop`.* TO 'me'@'10.%'",
        ),
        (of_mysql(1130, "Host '10.0.0.1' is not allowed"), DatabaseRefusedError, "Host", "CREATE USER 'me'@'10.0.0.1'"),
        (of_mysql(1698, "Access denied for 'me'@'::1'"), DatabaseRefusedError, "denied", "ALTER USER 'me'@'::1' IDENT"),
        (of_mysql(1820, "You must reset"), DatabaseRefusedError, "reset", "ALTER USER CURRENT_USER() IDENTIFIED BY"),
        (of_mysql(3118, "'me'@'x'. Account is locked"), DatabaseRefusedError, "locked", "ALTER USER 'me'@'x' ACCOUNT"),
        (
            of_mysql(1129, "Host is blocked"),
            DatabaseUnavailableError,
            "blocked",
            "Run as an administrator: FLUSH HOSTS",
        ),
        (of_mysql(2026, "SSL connection error"), DatabaseRefusedError, "SSL connection error. ", "ssl_ca of --source"),
        (of_mysql(3159, "insecure transport"), DatabaseRefusedError, "insecure", "ssl_ca of --source"),
        (of_mysql(1040, "Too many connections"), DatabaseUnavailableError, "Too many", "max_connections"),
        (of_mysql(1053, "Server shutdown"), DatabaseUnavailableError, "shutdown", "Wait"),
        (of_mysql(1205, "Lock wait"), DatabaseUnavailableError, "Lock wait; error 1205", "Read the server's log"),
        (
            of_mysql(2013, "Lost connection (timed out)"),
            DatabaseSilentError,
            ": Lost connection (timed out). ",
            "of a MySQL or MariaDB",
        ),
        (of_mysql(1999, "Something"), DatabaseRefusedError, "Something; error 1999", "Correct --source"),
    ],
)
def test_mysql(given: pymysql.Error, error: type[DatabaseError], why: str, advice: str) -> None:
    target = Target("mysql://me@10.0.0.7/shop", options=OPTIONS)
    found = unopened_mysql(given, target, mysql_address(target.dsn, OPTIONS))
    check(found, error, "database shop at 10.0.0.7:3306, user me", why, advice)


@pytest.mark.parametrize(
    ("number", "said"), [(1862, "Your password has expired"), (4151, "Access denied, this account is locked")]
)
def test_an_account_that_the_server_does_not_name(number: int, said: str) -> None:
    """Whose statement would perhaps create another account, or fail."""
    target = Target("mysql://me@10.0.0.7/shop", options=OPTIONS)
    text = str(unopened_mysql(of_mysql(number, said), target, mysql_address(target.dsn, OPTIONS)))
    assert ("Let an administrator" in text, "USER" in text) == (True, False)


def test_the_rights_at_a_sink() -> None:
    """There, reading is not enough."""
    target = Target("mysql://me@10.0.0.7/shop")
    error = of_mysql(1044, "Access denied for user 'me'@'10.%' to database 'shop'")
    text = str(unopened_mysql(error, target, mysql_address(target.dsn)))
    assert ("docs/target-tables.md" in text, "GRANT" in text) == (True, False)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('role "ann" does not exist', 'CREATE ROLE "ann" LOGIN'),
        ('database "ann" does not exist', 'CREATE DATABASE "ann"'),
        ("password authentication failed", "Correct the user"),
        ('permission denied for database "shop"', "Name another user"),
    ],
)
def test_names_that_the_address_does_not_have(said: str, advice: str) -> None:
    """They are the server's, or the statement is left out."""
    target = Target("postgresql://10.0.0.7", options=OPTIONS)
    error = psycopg.OperationalError(f"{AT}FATAL:  {said}")
    text = str(unopened_postgresql(error, target, postgresql_address(target.dsn, OPTIONS)))
    assert (advice in text, '""' in text, "GRANT" in text) == (True, False, False), text


def test_the_advice_is_about_the_host_that_is_shown() -> None:
    target = Target("postgresql://me@10.0.0.7,10.0.0.8:5433/shop", options=OPTIONS)
    error = psycopg.OperationalError(
        f"{AT}Connection refused\nMultiple connection attempts failed. All failures were:\n"
        f'- host: 10.0.0.7: {AT}FATAL:  role "me" does not exist\n- host: 10.0.0.8: {AT}Connection refused'
    )
    found = unopened_postgresql(error, target, postgresql_address(target.dsn, OPTIONS))
    place = "database shop at 10.0.0.7:5432,10.0.0.8:5433, user me"
    check(found, DatabaseSilentError, place, "(Connection refused)", "Start the server")


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        ("postgresql://me@/shop", "at libpq's default host, "),
        ("postgresql://me@a,b:1/shop", "at a:5432,b:1, "),
        ("host=a,b port=7", "(a:7,b:7)"),
        ("host=/run port=7", "(/run:7)"),
    ],
)
def test_places(dsn: str, place: str) -> None:
    target = Target(dsn, options=OPTIONS)
    assert place in str(unopened_postgresql(psycopg.OperationalError("x"), target, postgresql_address(dsn, OPTIONS)))


def check(found: DatabaseError, error: type[DatabaseError], place: str, why: str, advice: str) -> None:
    text = str(found)
    what, said, rest = text.partition("): ")
    assert type(found) is error, text
    assert what == f"cannot open a session at the source ({place}"
    assert why in said + rest
    assert advice in rest
    assert "\n" not in text


def test_a_port_where_nothing_listens_and_a_host_that_does_not_exist() -> None:
    for place, why in (("127.0.0.1:1", "no server listens there"), ("no.such.host.invalid:1", "cannot find the host")):
        with pytest.raises(DatabaseSilentError, match=why):
            open_connection(Target(f"postgresql://me@{place}/shop"), application_name="test", lock_seconds=1)
        with pytest.raises(DatabaseSilentError, match=why):
            open_session(Target(f"mysql://me@{place}/shop"), MysqlSession)
