"""A process that writes a numbered source to a change log: what tests of generations kill and start again.

    python change_source.py BOOTSTRAP CLUSTER SET WRITER KEYS COUNT PER_SECOND

Change number n has the key "<writer>-<n mod keys>". It prints "done" when all of them stand on the log.
"""

import sys
import time

from headgate.generation import ChangeWriter


def key_of(writer: str, number: int, keys: int) -> str:
    return f"{writer}-{number % keys}"


def main(*given: str) -> None:
    bootstrap, cluster, name, writer, keys, count, per_second = given
    with ChangeWriter.open(name, writer, bootstrap=bootstrap, cluster=cluster) as change_writer:
        # A source sends again a little of what it has sent.
        start = max(0, change_writer.position - 5)
        began = time.monotonic()
        for number in range(start, int(count)):
            ahead = (number - start) / float(per_second) - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
            change_writer.write(key_of(writer, number, int(keys)).encode(), str(number).encode(), number)
        change_writer.flush()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
