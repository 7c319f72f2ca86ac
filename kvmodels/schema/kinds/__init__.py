"""Definitions of the kinds of indexes: one module for each, listed in ``schema/definition/kinds.py``."""
