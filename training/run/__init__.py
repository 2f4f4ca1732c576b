"""What happens between the steps of a training: checkpoints, evaluation, guards, history."""
