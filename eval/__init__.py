"""Actions, episodes, desktops, agents, rollouts, scoring. The package shadows a builtin: `from eval.x import y`."""
