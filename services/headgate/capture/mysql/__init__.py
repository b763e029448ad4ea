"""A MySQL or MariaDB as a source: the server's settings, and what must change."""
