"""Models. Each model registers its name and config, and states its networks, its phases and how it is judged."""
