"""Hydration: rows to documents, objects and projections."""
