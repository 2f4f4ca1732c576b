"""Training in several processes: the workers, and Kubeflow's TrainJob."""
