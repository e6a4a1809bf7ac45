"""Rollouts: which tasks are tried, the policy that is sampled, how episodes are played, and what is kept of them."""
