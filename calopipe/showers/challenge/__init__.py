"""What CaloChallenge (arXiv 2410.21611) looks at in a shower."""
