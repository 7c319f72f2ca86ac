"""The asynchronous form of the PostgreSQL engine: the calls of one event loop, without threads."""
