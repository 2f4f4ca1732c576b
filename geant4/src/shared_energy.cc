#include "shared_energy.hh"

#include <algorithm>
#include <cmath>
#include <utility>

namespace calopipe {
namespace {

// The chance whose odds are `factor` times those of the chance.
template <class Number>
Number changed(float chance, Number factor) {
  constexpr float kRarest = 1e-30f, kSurest = 1 - 0x1p-24f;
  const float likely = std::clamp(chance, kRarest, kSurest);
  const Number more = likely * factor;
  return more / (more + (1 - likely));
}

}  // namespace

// By how much the log odds of all have to change, so that the chances sum to `number`.
float HitSampling::shift(const Numbers& chance, float number) const {
  constexpr int kSteps = 4;
  constexpr float kMost = 2.0f;
  float found = 0;
  for (int step = 0; step < kSteps; ++step) {
    const float factor = std::exp(found);
    float got = 0, give = 0;
    for (const float each : chance) {
      const float likely = changed(each, factor);
      got += likely;
      give += likely * (1 - likely);
    }
    found += std::clamp((number - got) / (give + 1e-3f), -kMost, kMost);
  }
  return found;
}

void HitSampling::draw(const Numbers& chance, float number, const Numbers& uniform, float start,
                       std::vector<std::size_t>& hits) {
  hits.clear();
  if (!(number > 0)) return;
  const double factor = std::exp(static_cast<double>(shift(chance, number)));
  order_.clear();
  likely_.clear();
  double got = 0;
  for (std::size_t cell = 0; cell < chance.size(); ++cell) {
    order_.emplace_back(uniform[cell], cell);
    likely_.push_back(changed(chance[cell], factor));
    got += likely_.back();
  }
  std::sort(order_.begin(), order_.end());
  const double by = got > 0 ? static_cast<double>(number) / got : 0.0;
  const double first = static_cast<double>(start + 0x1p-25f);
  double sum = 0;
  for (const auto& [each, cell] : order_) {
    const double own = likely_[cell] * by;
    sum += own;
    const double end = sum + first;
    if (std::floor(end) > std::floor(end - own)) hits.push_back(cell);
  }
  std::sort(hits.begin(), hits.end());
}

void stretch(const Constants& of, float energy, const Numbers& mean, Numbers& values) {
  constexpr int kNewtonSteps = 4;
  constexpr float kLeastFree = 0.1f;
  thread_local Numbers free;
  free.clear();
  for (std::size_t k = 0; k < values.size(); ++k) free.push_back(std::clamp(mean[k] / values[k], kLeastFree, 1.0f));
  for (int step = 0; step < kNewtonSteps; ++step) {
    float got = 0, give = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      got += values[k];
      give += values[k] * free[k];
    }
    if (give == 0) break;
    const float by = std::clamp(std::log((energy + of.least) / (got + of.least)) * (got / give), -3.0f, 3.0f);
    for (std::size_t k = 0; k < values.size(); ++k) values[k] *= std::exp(free[k] * by);
  }
}

void scale(const Constants& of, float energy, Numbers& values) {
  float got = 0;
  for (const float each : values) got += each;
  const float by = got != 0 ? energy / got : 0.0f;
  for (float& each : values) {
    each *= by;
    each = each > 0 ? std::max(each, of.least) : 0.0f;
  }
}

}  // namespace calopipe
