"""The connections of this process to one server, which the stores of several schemas share."""
