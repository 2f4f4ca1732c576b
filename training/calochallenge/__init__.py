"""CaloChallenge's numbers that need a model: results of classifiers, and times of generation."""
