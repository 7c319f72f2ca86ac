"""The home of kinds of indexes: a kind that the tests register works without a change of the package."""
