"""About a dozen tests, each of a whole path, that `make quick` runs beside the unit and contract tests."""
