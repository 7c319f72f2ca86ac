"""Changes of the schema, for the asynchronous facades."""
