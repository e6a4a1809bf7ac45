"""Tasks of linux-desktop in which something on the screen asks the agent for a harmful act."""
