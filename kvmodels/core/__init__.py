"""Keys, values and operations, which every layer above uses."""
