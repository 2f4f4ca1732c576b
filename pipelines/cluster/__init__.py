"""What a run asks of a cluster: resources, accelerators, volumes."""
