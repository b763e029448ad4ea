"""A MySQL or MariaDB as a source: what the server says, and what of it has to change."""
