"""Takes gh-ost's place in tests: keeps its published contract, and really changes a table of MariaDB.

What it keeps (github/gh-ost: doc/command-line-flags.md, hooks.md, interactive-commands.md): its flags, exit codes and
names of tables; hooks, each with the variables GH_OST_…, synchronous, and fatal where they fail; panic, postpone and
throttle flag files; its socket. What it does not do: it reads no binary log; clients' changes are made up for under the
cut-over's lock instead. So it says nothing about gh-ost itself.
"""

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import pymysql

FLAGS = ("execute", "allow-on-master", "approve-renamed-columns", "verbose")
VALUES = [
    "host",
    "port",
    "conf",
    "database",
    "table",
    "alter",
    "force-table-names",
    "hooks-path",
    "panic-flag-file",
    "postpone-cut-over-flag-file",
    "serve-socket-file",
    "throttle-additional-flag-file",
    "chunk-size",
    "cut-over-lock-timeout-seconds",
    "nice-ratio",
]
POLL_SECONDS = 0.02
CUT_OVERS_MAX = 3


class FatalError(Exception):
    pass


class Double:
    def __init__(self, given: Any) -> None:
        self.given = given
        self.table, self.force = f"`{given.table}`", given.force_table_names or given.table
        self.ghost, self.log, self.old = (f"_{self.force}_{suffix}" for suffix in ("gho", "ghc", "del"))
        self.begun = time.monotonic()
        self.copied = self.estimated = 0
        self.is_throttled_by_user = self.is_unpostponed = False
        self.nice_ratio = float(given.nice_ratio or 0)
        self.state = "N/A"

    def connect(self) -> Any:
        conf = {}
        for line in Path(self.given.conf).read_text().splitlines():
            name, _, value = line.partition("=")
            conf[name] = value[1:-1].replace('\\"', '"').replace("\\\\", "\\") if value else ""
        try:
            return pymysql.connect(
                host=self.given.host, port=int(self.given.port), user=conf["user"], password=conf["password"],
                database=self.given.database, autocommit=True,
            )  # fmt: skip
        except pymysql.Error as error:
            raise FatalError(str(error)) from error

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            with self.session.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except pymysql.Error as error:
            raise FatalError(f"{error.args}") from error

    # --- hooks, files, socket ---

    def hook(self, event: str, **more: str) -> None:
        known = {
            "DATABASE_NAME": self.given.database,
            "TABLE_NAME": self.given.table,
            "GHOST_TABLE_NAME": self.ghost,
            "OLD_TABLE_NAME": self.old,
            "DDL": self.given.alter,
            "ELAPSED_SECONDS": f"{time.monotonic() - self.begun:f}",
            "ESTIMATED_ROWS": str(self.estimated),
            "COPIED_ROWS": str(self.copied),
            "PROGRESS": f"{100 * self.copied / max(self.estimated, 1):f}",
            "ETA_SECONDS": str(2**63 - 1),
            "DRY_RUN": str(not self.given.execute).lower(),
            **more,
        }
        environment = {**os.environ, **{f"GH_OST_{name}": value for name, value in known.items()}}
        if self.given.hooks_path:
            for program in sorted(Path(self.given.hooks_path).glob(f"gh-ost-{event}*")):
                if subprocess.run([program], env=environment, check=False).returncode != 0:
                    raise FatalError(f"hook {program.name} failed")

    def check(self) -> None:
        """Panic, and throttling, as gh-ost looks for them between two copies."""
        while True:
            if self.given.panic_flag_file and Path(self.given.panic_flag_file).exists():
                sys.stderr.write("FATAL Found panic-file\n")
                os._exit(1)
            extra = self.given.throttle_additional_flag_file
            why = (
                "commanded by user"
                if self.is_throttled_by_user
                else "flag-file"
                if extra and Path(extra).exists()
                else ""
            )
            self.state = f"throttled, {why}" if why else "1s"
            if not why:
                return
            time.sleep(POLL_SECONDS)

    def serve(self) -> None:
        path = self.given.serve_socket_file
        if path:
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.bind(path)
            server.listen()
            threading.Thread(target=self.answer, args=(server,), daemon=True).start()

    def answer(self, server: socket.socket) -> None:
        while True:
            channel, _ = server.accept()
            with channel, channel.makefile("rw") as lines:
                command, _, argument = lines.readline().strip().partition("=")
                match command:
                    case "status":
                        pass
                    case "throttle" | "no-throttle":
                        self.is_throttled_by_user = command == "throttle"
                    case "nice-ratio":
                        self.nice_ratio = float(argument)
                    case "cut-over":
                        self.is_unpostponed = True
                    case _:
                        lines.write(f"Unknown command: {command}\n")
                        continue
                lines.write(f"# Migrating `{self.given.database}`.{self.table}; Ghost table is `{self.ghost}`\n"
                            f"# nice-ratio: {self.nice_ratio:f}\n"
                            f"Copy: {self.copied}/{self.estimated}; Applied: 0; ETA: {self.state}\n")  # fmt: skip

    # --- the change ---

    def run(self) -> None:
        self.session = self.connect()
        self.serve()
        self.hook("on-startup")
        self.sql(f"CREATE TABLE `{self.log}` (id bigint PRIMARY KEY, hint varchar(64))")
        self.sql(f"CREATE TABLE `{self.ghost}` LIKE {self.table}")
        try:
            self.sql(f"ALTER TABLE `{self.ghost}` {self.given.alter}")
            self.hook("on-validated")
        except FatalError:
            self.drop()
            raise
        if not self.given.execute:
            self.drop()
            return
        self.copy()
        self.hook("on-row-copy-complete")
        self.postpone()
        for attempt in range(1, CUT_OVERS_MAX + 1):
            try:
                self.hook("on-before-cut-over")
                self.cut_over()
                break
            except FatalError:
                if attempt == CUT_OVERS_MAX:
                    raise
        self.sql(f"DROP TABLE `{self.log}`")
        self.hook("on-success")

    def drop(self) -> None:
        self.sql(f"DROP TABLE `{self.ghost}`, `{self.log}`")

    def shared(self) -> str:
        columns = [
            {row[0] for row in self.sql(f"SHOW COLUMNS FROM {name}")} for name in (self.table, f"`{self.ghost}`")
        ]
        return ", ".join(sorted(columns[0] & columns[1]))

    def copy(self) -> None:
        size, above, columns = int(self.given.chunk_size or 1000), None, self.shared()
        self.estimated = self.sql(f"SELECT COUNT(*) FROM {self.table}")[0][0]
        while True:
            self.check()
            after = "" if above is None else f"WHERE id > {above}"
            chunk = self.sql(f"SELECT id FROM {self.table} {after} ORDER BY id LIMIT {size}")
            if not chunk:
                return
            above = chunk[-1][0]
            self.sql(f"INSERT IGNORE INTO `{self.ghost}` ({columns}) SELECT {columns} FROM {self.table} "
                     f"WHERE id BETWEEN {chunk[0][0]} AND {above}")  # fmt: skip
            self.copied += len(chunk)
            self.hook("on-status", STATUS=f"Copy: {self.copied}/{self.estimated}; ETA: 1s")
            time.sleep(self.nice_ratio * 0.01)

    def postpone(self) -> None:
        flag, is_told = self.given.postpone_cut_over_flag_file, False
        while flag and Path(flag).exists() and not self.is_unpostponed:
            if not is_told:
                self.hook("on-begin-postponed")
                is_told = True
            self.check()
            self.state = "postponing cut-over"
            time.sleep(POLL_SECONDS)

    def cut_over(self) -> None:
        columns, second = self.shared(), self.connect()
        self.sql(f"SET SESSION lock_wait_timeout = {self.given.cut_over_lock_timeout_seconds or 3}")
        self.sql(f"LOCK TABLES {self.table} WRITE, `{self.ghost}` WRITE")
        rename = threading.Thread(target=self.rename, args=(second,))
        try:
            self.sql(f"DELETE FROM `{self.ghost}`")
            self.sql(f"INSERT INTO `{self.ghost}` ({columns}) SELECT {columns} FROM {self.table}")
            rename.start()
            while not self.is_renaming(second.thread_id()):
                time.sleep(POLL_SECONDS)
        finally:
            self.sql("UNLOCK TABLES")
        rename.join()
        if not self.sql(f"SHOW TABLES LIKE '{self.old}'"):
            raise FatalError("the rename failed")

    def rename(self, session: Any) -> None:
        with session.cursor() as cursor:
            cursor.execute(f"RENAME TABLE {self.table} TO `{self.old}`, `{self.ghost}` TO {self.table}")

    def is_renaming(self, number: int) -> bool:
        with self.connect() as watcher, watcher.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE id = %s AND state LIKE %s",
                (number, "Waiting for table%"),
            )
            return bool(cursor.fetchone()[0])


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"flag provided but not defined: {message}\n")
        sys.exit(2)


def main() -> None:
    parser = Parser(allow_abbrev=False)
    for name in FLAGS:
        parser.add_argument(f"--{name}", action="store_true")
    for name in VALUES:
        parser.add_argument(f"--{name}")
    double = Double(parser.parse_args())
    try:
        double.run()
    except FatalError as error:
        sys.stderr.write(f"FATAL {error}\n")
        double.hook("on-failure")
        sys.exit(1)
    sys.stdout.write("# Done\n")


if __name__ == "__main__":
    main()
