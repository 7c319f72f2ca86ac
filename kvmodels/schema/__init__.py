"""Schemas: models, markers, declared indexes, and the schemas compiled from them."""
