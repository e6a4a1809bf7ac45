"""From rollouts to gradients: advantages, the gate, SDPO, a coefficient for each token, rows, losses, processes."""
