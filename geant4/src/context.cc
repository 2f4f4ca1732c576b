#include "context.hh"

#include <algorithm>
#include <cmath>

#include "sharing.hh"

namespace calopipe {
namespace {

constexpr float kTiny = 1e-3f;
constexpr std::array<Sum, kBudgets> kBudgetSums = {kCells, kHits, kBeyondHalf, kBeyondMost, kXX, kYY};
constexpr Budgets kFloors = {3.0f, 2.0f, kHit, kHit, 10 * kHit, 10 * kHit};

// A moment about the axis, and the same moment times the depth: their sums; the rest of the energy, by the weights of
// the moment; the layer's cells in one `cell_mm`; and both moments of the whole shower.
struct Moment {
  Sum sum, deep;
  const Rest& rest;
  float cells, promised = 0, promised_deep = 0;
};

void of_layer(const Sums& sums, std::size_t count, Numbers& into) {
  const float energy = std::max(sums[kEnergy], kTiny);
  const std::array<float, 8> found = {
      std::log(1.0f + sums[kCells]),
      std::log(sums[kBeyondMost] / energy + 3e-3f),
      std::log((sums[kXX] + sums[kYY]) / energy + 0.05f),
      std::log(sums[kBeyondHalf] / energy + 0.02f),
      std::sqrt(sums[kSquares]) / energy,
      clip(sums[kNearX] / energy, 2),
      clip(sums[kNearY] / energy, 2),
      sums[kHits] / (sums[kCells] + 1.0f),
  };
  into.insert(into.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

Numbers context(const Plan& plan, const LayerFrame& frame, const Before& before, const Sums* even, float promised) {
  Numbers found = frame.plan.inputs;
  const float energy = std::max(before.all[kEnergy], kTiny);
  of_layer(before.one, 8, found);
  of_layer(before.two, 3, found);
  found.push_back(std::log(before.all[kBeyondMost] / energy + 3e-3f));
  found.push_back(std::log((before.all[kXX] + before.all[kYY]) / energy + 0.05f));
  found.push_back(before.all[kCells] / plan.budgets[0]);
  Sums spent = before.all;
  if (even) {
    for (std::size_t k = 0; k < kSums; ++k) spent[k] += (*even)[k];
    const float mine = std::max(frame.plan.energy, kTiny), left = 1 - promised / mine;
    found.push_back(std::max(left, -0.3f));
    found.push_back(std::log(std::max(left, kTiny)));
    found.push_back(std::log(std::max(left * mine, kTiny)));
    of_layer(*even, 8, found);
  }
  found.push_back(std::log((spent[kEnergy] + kHit) / (frame.plan.energy_before + promised + kHit)));
  for (std::size_t k = 0; k < kBudgets; ++k) {
    const float remaining = std::max(plan.budgets[k] - spent[kBudgetSums[k]], 0.0f) + kFloors[k];
    found.push_back(clip(std::log(remaining / (frame.plan.expected[k] + kFloors[k])), 2));
  }
  const float here = spent[kEnergy] - before.all[kEnergy];
  const auto& [x, y, x_depth, y_depth] = plan.moments;
  const auto& [all, in_x, in_y] = frame.plan.rest;
  const float cells_x = std::sqrt(in_x.weight), cells_y = std::sqrt(in_y.weight);
  const std::array<Moment, kMoments> moments = {{{kX, kXDepth, all, cells_x, x, x_depth},
                                                 {kY, kYDepth, all, cells_y, y, y_depth},
                                                 {kNearX, kNearXDepth, in_x, cells_x},
                                                 {kNearY, kNearYDepth, in_y, cells_y}}};
  for (const Moment& moment : moments) {
    const Rest& rest = moment.rest;
    const float energy = std::max(rest.energy - here * rest.weight, kTiny);
    const float at = (moment.promised - spent[moment.sum]) / energy;
    const float deep = (moment.promised_deep - spent[moment.deep]) / energy;
    const float slope = (deep - at * rest.mean) / (rest.variance + 0.5f);
    found.push_back(clip(at * moment.cells, 1));
    found.push_back(clip((at + slope * (frame.plan.depth - rest.mean)) * moment.cells, 2));
  }
  return found;
}

void add_share(float logit, float energy, Numbers& contexts) {
  contexts.push_back(logit);
  contexts.push_back(std::log(std::max(share_of(logit) * energy, kTiny)));
}

void add_count(float count, float energy, Numbers& contexts) {
  const float log_count = std::log(std::max(count, 0.5f));
  contexts.push_back(log_count);
  contexts.push_back(std::log(std::max(energy, kTiny)) - log_count);
}

void normalise(const Constants& of, int colour, const Numbers& contexts, Numbers& into) {
  into.resize(contexts.size());
  const Numbers &mean = of.context_mean[size(colour)], &scale = of.context_scale[size(colour)];
  for (std::size_t k = 0; k < contexts.size(); ++k) into[k] = clip((contexts[k] - mean[k]) / scale[k], 6);
}

}  // namespace calopipe
