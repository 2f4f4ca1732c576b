"""The numbers of CaloChallenge (arXiv 2410.21611): separation powers, FPD and KPD, with published values."""
