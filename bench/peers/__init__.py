"""Other schedulers doing the same work in the same run: `python -m bench.peers`.

N jobs are due at one full minute, and each calls the receiver (bench/sink.py) once. Each peer gets the configuration
that its guide recommends for such work, as far as bench/peers/adapters says, durable settings of its database, and the
best asynchronous HTTP client of its language, as most have no delivery of their own. What a peer does not do is
written beside its figures.
"""
