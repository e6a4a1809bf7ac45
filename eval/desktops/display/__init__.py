"""An X display: what acts on it (`executor`), its pictures, keys and windows, and when its programs sleep."""
