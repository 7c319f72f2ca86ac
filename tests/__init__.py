"""The tests of kvmodels; a package, so that no other installed package named ``tests`` can shadow it."""
