"""A training on several machines: workers, their supervision, and Kubeflow's TrainJob."""
