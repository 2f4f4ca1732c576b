"""The numbers of CaloChallenge (arXiv 2410.21611): separation powers, FPD, KPD, beside published values."""
