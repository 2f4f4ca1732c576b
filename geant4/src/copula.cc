#include "copula.hh"

#include <algorithm>
#include <cmath>

namespace calopipe {

Numbers product(const Numbers& labels, const Numbers& table, std::size_t columns) {
  Numbers found(columns);
  for (std::size_t k = 0; k < columns; ++k) {
    for (std::size_t term = 0; term < labels.size(); ++term) found[k] += labels[term] * table[term * columns + k];
  }
  return found;
}

Numbers scale_terms(const Numbers& terms) {
  Numbers found(terms.begin(), terms.begin() + kScaleTerms);
  found.insert(found.end(), terms.begin() + kMeanTerms, terms.end());
  return found;
}

Copula::Copula(const Model::Contents& model, const Asked& asked) : of_(model.constants) {
  const auto number = static_cast<std::size_t>(model.totals());
  mean_ = product(asked.terms, of_.mean, number);
  scale_ = product(scale_terms(asked.terms), of_.scale, number);
  for (float& each : scale_) each = std::exp(each);
  const float place = std::clamp(asked.terms[1], -1.0f, 1.0f);
  for (std::size_t e = 0; e < kEnergies; ++e) {
    weights_[e] = std::max(1 - std::abs(place - (-1.0f + 0.25f * static_cast<float>(e))) * 4, 0.0f);
  }
}

float Copula::total(const Numbers& normal, std::size_t which) const {
  const std::size_t number = mean_.size();
  float score = 0;
  for (std::size_t j = 0; j < number; ++j) score += normal[j] * of_.colouring[which * number + j];
  const float at = std::clamp((score + kScoreReach) / kScoreStep, 0.0f, kScores - 1.0f);
  const float left = std::min(std::floor(at), kScores - 2.0f);
  float low = 0, high = 0;
  for (std::size_t e = 0; e < kEnergies; ++e) {
    const float* table = of_.quantiles.data() + (e * kScores + static_cast<std::size_t>(left)) * number + which;
    low += table[0] * weights_[e];
    high += table[number] * weights_[e];
  }
  return mean_[which] + scale_[which] * (low + (at - left) * (high - low));
}

Numbers Copula::totals(const Numbers& normal, const Numbers& budget_terms) const {
  const std::size_t number = mean_.size();
  Numbers found(number);
  for (std::size_t k = 0; k < number; ++k) found[k] = total(normal, k);
  for (std::size_t last = 0; last < kLast; ++last) {
    float sum = 0;
    for (std::size_t term = 0; term < budget_terms.size(); ++term) {
      sum += budget_terms[term] * of_.mean_of_budgets[term * kLast + last];
    }
    found[number - kLast + last] += sum;
  }
  return found;
}

}  // namespace calopipe
