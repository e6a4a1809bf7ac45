"""The pages: what each address answers, and how values are written."""
