"""Related records beside Django and SQLModel, on SQLite with foreign keys switched on."""
