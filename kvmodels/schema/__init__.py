"""Schemas: models, markers, declared indexes, and what is compiled of them."""
