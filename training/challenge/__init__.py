"""CaloChallenge's numbers that training makes: classifiers, and times of generation."""
