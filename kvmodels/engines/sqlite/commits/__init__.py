"""Commits of the SQLite engine."""
