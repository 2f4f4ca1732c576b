"""What a run needs on a cluster: resources, accelerators, volumes."""
