"""Models: each registers itself by name with its config, and states its networks, its phases and how it is judged."""
