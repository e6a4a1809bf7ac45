"""A model as training holds it: `loading`, `parts`, `precision`, `sharding`, `ema`, `merging`, `saving`, its `card`."""
