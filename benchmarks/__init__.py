"""The cost of kvmodels, compared with hand-written code on the same stores and with other libraries: ``make bench``."""
