"""What a model is asked for: the commands that make showers, and their labels."""
