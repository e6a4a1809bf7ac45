"""What a run executes besides its image: overlays of a working tree, Python environments, local packages."""
