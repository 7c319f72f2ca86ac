"""Keys, values and operations, used by every layer above."""
