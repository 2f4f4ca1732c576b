#include "shared_energy.hh"

#include <algorithm>
#include <cmath>
#include <utility>

#include "networks.hh"

namespace calopipe {
namespace {

constexpr int kNewtonSteps = 4;
constexpr float kMostShift = 2.0f;

// The chance whose odds are `factor` times those of the chance.
float changed(float chance, float factor) {
  const float hit = chance * factor;
  return hit / (hit + (1 - chance));
}

// By what the odds of all chances have to be multiplied, so that they sum to `number`.
float factor_of_odds(const Numbers& chance, float number) {
  float found = 1;
  for (int step = 0; step < kNewtonSteps; ++step) {
    float got = 0, give = 0;
    for (const float each : chance) {
      const float likely = changed(each, found);
      got += likely;
      give += likely * (1 - likely);
    }
    found *= std::exp(std::clamp((number - got) / (give + 1e-3f), -kMostShift, kMostShift));
  }
  return found;
}

}  // namespace

void HitSampling::draw(Numbers& chance, float number, const Numbers& uniform, float start,
                       std::vector<std::size_t>& hits) {
  constexpr float kRarest = 1e-30f, kSurest = 1 - 0x1p-24f;
  hits.clear();
  if (!(number > 0)) return;
  for (float& each : chance) each = each > 0 ? std::clamp(each, kRarest, kSurest) : 0.0f;
  const float factor = factor_of_odds(chance, number);
  order_.clear();
  double got = 0;
  for (std::size_t cell = 0; cell < chance.size(); ++cell) {
    order_.emplace_back(uniform[cell], static_cast<std::uint32_t>(cell));
    chance[cell] = changed(chance[cell], factor);
    got += static_cast<double>(chance[cell]);
  }
  std::sort(order_.begin(), order_.end());
  const double by = got > 0 ? static_cast<double>(number) / got : 0.0;
  const double first = static_cast<double>(start) + 0x1p-25;
  double sum = 0;
  for (const auto& [each, cell] : order_) {
    const double own = static_cast<double>(chance[cell]) * by;
    sum += own;
    const double end = sum + first;
    if (static_cast<std::int64_t>(end) > static_cast<std::int64_t>(end - own)) hits.push_back(cell);
  }
  std::sort(hits.begin(), hits.end());
}

void share(Numbers& logs) {
  constexpr float kFar = 60.0f;  // whose exponential is neither 0 nor infinite
  float level = 0, whole = 0;
  for (const float each : logs) level += each;
  level /= static_cast<float>(logs.size());
  for (float& each : logs) {
    each = std::exp(std::clamp(each - level, -kFar, kFar));
    whole += each;
  }
  for (float& each : logs) each /= whole;
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
