"""What a model is asked for: the command that makes showers, and the labels of the showers."""
