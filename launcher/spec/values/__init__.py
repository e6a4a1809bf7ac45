"""YAML text -> plain values with their places in the file; the types that they may have."""
