"""Stored forms: how a field's value becomes a value that codecs can encode."""
