"""What is special to showers: their records, what an energy cut drops, and whether a file is plausible."""
