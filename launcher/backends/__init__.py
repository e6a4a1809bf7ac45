"""Where runs execute: one module or folder per backend, found by name and imported only when used."""
