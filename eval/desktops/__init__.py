"""Real Linux desktops: what carries out actions, the server in front of it, and its client."""
