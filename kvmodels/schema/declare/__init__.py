"""Declarations: markers, indexes and expressions that a model class is written with."""
