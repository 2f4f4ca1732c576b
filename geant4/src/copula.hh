// From normal numbers to totals: `from_normal` of the model in Python (sampling/shower.py).
#pragma once

#include "plan.hh"

namespace calopipe {

// `labels` x `table`, which has so many columns.
Numbers product(const Numbers& labels, const Numbers& table, std::size_t columns);
// The terms of labels that scales are polynomials of.
Numbers scale_terms(const Numbers& terms);

// The totals' means and scales at the labels of a shower, their correlations and quantiles.
class Copula {
 public:
  Copula(const Model::Contents& model, const Asked& asked);

  // One total, from the normal numbers up to its own; of the last ones without what follows from its terms.
  float total(const Numbers& normal, std::size_t which) const;
  // `budget_terms`, what the means of budgets and moments are linear in beside the labels, may be none.
  Numbers totals(const Numbers& normal, const Numbers& budget_terms) const;
  // How many scales a total is from its mean.
  float standardised(const Numbers& totals, std::size_t which) const {
    return (totals[which] - mean_[which]) / scale_[which];
  }

 private:
  const Constants& of_;
  Numbers mean_, scale_;
  std::array<float, kEnergies> weights_;  // of the energies at which there are quantiles
};

}  // namespace calopipe
