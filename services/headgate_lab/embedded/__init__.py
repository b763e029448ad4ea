"""Real servers without installation: broker and Connect in one JVM, PostgreSQL from a wheel, pinned artifacts."""
