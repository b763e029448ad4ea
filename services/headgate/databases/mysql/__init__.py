"""MySQL and MariaDB: addresses, sessions and what their errors mean."""
