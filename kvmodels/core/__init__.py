"""Keys, values and operations: what every layer above speaks."""
