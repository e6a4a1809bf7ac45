"""The docker backend on a real engine, with the real image slipway-cpu."""
