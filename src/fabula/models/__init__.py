"""The model: one file per factor of the joint, then one per system that composes them."""
