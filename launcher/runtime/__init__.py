"""What runs inside every container: `python -m launcher.runtime`. Few dependencies, no training, no eval."""
