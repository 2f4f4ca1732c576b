"""CaloChallenge (arXiv 2410.21611): its calorimeters, its features of showers, and the documents of its numbers."""

from calopipe.documents import Form

# Documents that training makes for the table of a verdict: AUC and JSD of classifiers, times of generation.
CLASSIFIER, TIMING = Form("calopipe.classifier", 1), Form("calopipe.timing", 1)
