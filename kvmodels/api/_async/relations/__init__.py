"""Relations between records, for the asynchronous facades."""
