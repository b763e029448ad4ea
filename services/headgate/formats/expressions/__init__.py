"""What expressions of a feed mean: types, values of events, and compiling to Python.

``typing`` checks an expression against the types of its columns · ``values`` reads values of events and of databases ·
``operators`` and ``functions`` compute · ``code`` compiles · ``evaluation`` compiles an option's expression for the
schema of events, or for a database · ``filters`` decides which rows a table has · ``computed`` computes its columns.
"""
