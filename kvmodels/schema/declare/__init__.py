"""Declarations: the markers, indexes and expressions used in model classes."""
