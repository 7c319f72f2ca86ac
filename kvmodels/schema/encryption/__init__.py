"""Encrypted fields of a model: their checks, and the documents that hold their sealed values."""

from __future__ import annotations
