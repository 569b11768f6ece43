"""Other right solutions are loaded by the tests of the checks; pytest leaves them alone."""

collect_ignore_glob = ["*.py"]
