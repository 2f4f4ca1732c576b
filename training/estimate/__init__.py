"""What a training takes before it is begun: time, memory, money. `docs/scaling.md` has the model and its check."""
