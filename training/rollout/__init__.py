"""Frames from a trained model of a flow, step after step."""
