"""What runs where: the pipeline's definition and the command that runs, compiles, submits and schedules it."""
