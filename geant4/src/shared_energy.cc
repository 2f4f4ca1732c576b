#include "shared_energy.hh"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "networks.hh"

namespace calopipe {
namespace {

constexpr int kNewtonSteps = 4, kShiftSteps = 3;
constexpr float kMostShift = 2.0f, kMostStep = 1.5f, kMostApart = 3.0f;
constexpr float kRarest = 1e-30f, kSurest = 1 - 0x1p-24f;
constexpr float kFar = 60.0f;  // logarithms are cut here: exp is then neither 0 nor infinite

// The chance whose odds are `factor` times the odds of `chance`.
float changed(float chance, float factor) {
  const float hit = chance * factor;
  return hit / (hit + (1 - chance));
}

// The factor by which all odds have to be multiplied, so that the chances sum to `number`.
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

// The logarithm of the energy that has a `score` in a layer's `spectrum`, and the rise of the logarithm with the score.
std::pair<float, float> log_energy(const float* spectrum, float score) {
  const float place = (score + kScoreReach) / kScoreStep;
  const float left = place > 0 ? std::min(std::floor(place), kScores - 2.0f) : 0.0f;  // 0 for NaN too
  const float* at = spectrum + static_cast<int>(left);
  const float rise = at[1] - at[0];
  return {at[0] + (place - left) * rise, rise / kScoreStep};
}

}  // namespace

void HitSampling::draw(Numbers& chance, float number, const Numbers& uniform, float start,
                       std::vector<std::size_t>& hits) {
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

void deposit(const float* spectrum, float energy, Numbers& scores) {
  float level = 0, shift = -kScoreReach;
  for (const float each : scores) level += each;
  level /= static_cast<float>(scores.size());
  float squares = 0;
  for (float& each : scores) {
    each = std::clamp(each - level, -kFar, kFar);
    squares += each * each;
  }
  const float wanted = std::log(std::max(energy, kRarest)), hits = static_cast<float>(scores.size());
  const float mean = wanted - std::log(hits);
  const auto below = std::count_if(spectrum, spectrum + kScores, [&](float each) { return each < mean; });
  shift += kScoreStep * static_cast<float>(below);
  const float rise_there = log_energy(spectrum, shift).second;
  if (rise_there > 0) shift += std::max(mean - spectrum[kScores - 1], 0.0f) / rise_there;
  shift -= std::min(rise_there * squares / hits, kMostApart) / 2;
  float step = 0;
  std::vector<std::pair<float, float>> found(scores.size());
  for (int number = 0; number < kShiftSteps; ++number) {
    shift += step;
    float total = 0, rise = 0;
    for (std::size_t hit = 0; hit < scores.size(); ++hit) {
      found[hit] = log_energy(spectrum, scores[hit] + shift);
      const float value = std::exp(std::clamp(found[hit].first, -kFar, kFar));
      total += value;
      rise += value * found[hit].second;
    }
    const float by = rise != 0 ? total / rise : 0.0f;
    step = std::clamp((wanted - std::log(std::max(total, kRarest))) * by, -kMostStep, kMostStep);
  }
  for (std::size_t hit = 0; hit < scores.size(); ++hit) {
    const auto [log_value, slope] = found[hit];
    scores[hit] = std::exp(std::clamp(log_value + slope * std::clamp(step, -kScoreStep, kScoreStep), -kFar, kFar));
  }
}

void energies(const float* spectrum, Numbers& scores) {
  for (float& each : scores) {
    const float score = std::clamp(each, -2 * kScoreReach, 3 * kScoreReach);
    each = std::exp(std::clamp(log_energy(spectrum, score).first, -kFar, kFar));
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
