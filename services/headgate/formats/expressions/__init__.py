"""What expressions of a feed mean: types, values of events, and compiling to Python.

``typing`` checks an expression against the types of its columns · ``values`` reads values of events and of databases ·
``operators`` computes · ``code`` compiles · ``filters`` decides which rows a table has.
"""
