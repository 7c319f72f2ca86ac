"""Schemas: models, markers, declared indexes, and the schemas compiled of them."""
