"""The images that jobs run in: what each is made of, its version, building, pushing, and the catalogue of digests."""
