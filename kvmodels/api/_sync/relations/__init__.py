"""Relations between records, for the synchronous facades."""
