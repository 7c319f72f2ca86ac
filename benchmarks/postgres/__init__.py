"""One PostgreSQL server: kvmodels beside raw psycopg, SQLModel and Django."""
