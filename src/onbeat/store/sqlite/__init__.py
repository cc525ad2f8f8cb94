"""The SQLite engine: one file, one process that writes it, commits that survive a power cut.

One thread owns the writing connection (`writer.py`), two threads read (`readers.py`). Every statement stands in
`queries/*.sql`, every table in `migrations/*.sql`; the modules named like the contract's nouns put them together.
"""
