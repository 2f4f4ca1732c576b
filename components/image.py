"""The one image that every step runs in."""

# "python" in the name tells kfp's local runner that the image is a Python environment.
IMAGE = "calopipe-python:0.2.0"
