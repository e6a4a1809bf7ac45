"""What acts on a real desktop, against a real X server and real programs."""
