"""Models that were promoted, and the training of the next model."""
