"""A dataset in, a trained model out; and showers generated from a model."""
