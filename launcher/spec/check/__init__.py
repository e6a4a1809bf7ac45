"""The fields of a job, declared once, and the rules among them."""
