"""Changes of the schema, for the synchronous facades."""
