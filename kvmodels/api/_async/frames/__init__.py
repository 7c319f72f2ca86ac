"""Tables and data frames, for the asynchronous facades."""
