"""Frames from a trained model of a flow: step after step, and one step by map and reduce over tiles."""
