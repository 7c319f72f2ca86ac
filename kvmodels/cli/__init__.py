"""The command ``kvmodels``, which the extra ``kvmodels[cli]`` installs; the library never imports it."""
