"""Old versions of records: lists of them, the state of the past, removed records and their way back."""
