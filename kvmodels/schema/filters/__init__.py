"""Filters: conditions and changes, parsed and typed."""
