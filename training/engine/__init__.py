"""The optimisation step: strategies, schedules, and the profile of a step."""
