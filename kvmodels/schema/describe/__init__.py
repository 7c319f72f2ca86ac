"""Descriptions of models and indexes as plain data, for programs that show or document them."""

from __future__ import annotations
