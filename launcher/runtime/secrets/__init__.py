"""The values of a run's secrets, the store's credentials, and their masking."""
