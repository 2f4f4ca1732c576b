"""Training in several processes: the workers, their supervision on one machine, and Kubeflow's TrainJob."""
