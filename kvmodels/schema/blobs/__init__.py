"""Files as values of models: their sources, what a document stores of them, and the files that read them."""
