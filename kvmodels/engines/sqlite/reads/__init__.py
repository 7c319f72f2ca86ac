"""Reads of the SQLite engine."""
