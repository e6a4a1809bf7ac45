"""The templates. Each module has a list TEMPLATES; `registry` puts them together."""
