"""Showers of a trained model: for which labels, how they are made and written, and the command."""
