"""Codecs: how values become bytes and come back."""
