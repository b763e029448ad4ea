"""PostgreSQL: addresses, sessions and what its errors mean."""
