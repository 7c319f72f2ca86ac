"""What kvmodels costs, beside hand-written code on the same stores and beside other libraries: ``make bench``."""
