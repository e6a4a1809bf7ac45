"""The object store, the only truth: layout (names), base (the interface), file and object stores, manifests, sync."""
