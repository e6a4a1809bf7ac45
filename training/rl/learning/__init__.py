"""From rollouts to gradients: the gate, advantages, SDPO, one coefficient for each token, rows, losses, processes."""
