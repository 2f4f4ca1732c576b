// From normal numbers to totals: `from_normal` of the model in Python (sampling/shower.py).
#pragma once

#include "plan.hh"

namespace calopipe {

// The product of `labels` (terms) and `table` (terms, columns).
Numbers product(const Numbers& labels, const Numbers& table, std::size_t columns);
// The terms of the labels that the scales follow from.
Numbers scale_terms(const Numbers& terms);

// The totals' means and scales at the labels of a shower, their correlations and quantiles.
class Copula {
 public:
  Copula(const Model::Contents& model, const Asked& asked);

  // One total, from the normal numbers up to its own. For the last kLast totals, the part from `budget_terms` is
  // missing.
  float total(const Numbers& normal, std::size_t which) const;
  // All totals. `budget_terms` are the terms, other than labels, in which the means of budgets and moments are linear.
  // They may be empty.
  Numbers totals(const Numbers& normal, const Numbers& budget_terms) const;
  // How many scales a total is from its mean.
  float standardised(const Numbers& totals, std::size_t which) const {
    return (totals[which] - mean_[which]) / scale_[which];
  }

 private:
  const Constants& of_;
  Numbers mean_, scale_;
  std::array<float, kEnergies> weights_;  // of the energies that have quantiles, at the shower's energy
};

}  // namespace calopipe
