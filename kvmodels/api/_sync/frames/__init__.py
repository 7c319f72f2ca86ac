"""Tables and data frames, for the synchronous facades."""
