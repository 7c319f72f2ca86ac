"""The blobs of a database: the store that opens them, and downloads to files."""
