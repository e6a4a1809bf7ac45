"""A real Kubernetes cluster for tests: see tests/cluster/README.md."""
