"""The commands, one module for each group; ``kvmodels/cli/application.py`` registers them."""
