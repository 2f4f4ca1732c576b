#include "plan.hh"

#include <algorithm>
#include <cmath>

#include "frame.hh"
#include "totals.hh"

namespace calopipe {
namespace {

// What each layer is expected to take of the BUDGETS.
std::vector<Budgets> expected_layers(const Model::Contents& model, const Asked& asked, const Numbers& energy) {
  const std::size_t layers = energy.size(), numbers = 8 + asked.terms.size() - kMeanTerms;
  float whole = 0;
  for (const float each : energy) whole += each;
  Numbers share(layers), terms(numbers);
  for (std::size_t layer = 0; layer < layers; ++layer) share[layer] = std::log(std::max(energy[layer] / whole, 1e-6f));
  std::vector<Budgets> found(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const float one = share[layer], e = asked.terms[1], a = asked.terms[2];
    terms = {1, e, a, a * a, one, one * one, share[std::min(layer + 1, layers - 1)], share[layer ? layer - 1 : 0]};
    terms.insert(terms.end(), asked.terms.begin() + kMeanTerms, asked.terms.end());
    for (std::size_t budget = 0; budget < kBudgets; ++budget) {
      const float* weights = model.constants.expected.data() + (budget * layers + layer) * numbers;
      float sum = 0;
      for (std::size_t k = 0; k < numbers; ++k) sum += terms[k] * weights[k];
      const float taken = std::exp(std::clamp(sum, -15.0f, 12.0f));
      found[layer][budget] = counted(static_cast<int>(budget)) ? taken : taken * energy[layer];
    }
  }
  return found;
}

void promise(const Model::Contents& model, const Asked& asked, const Totals& totals, const Numbers& energy,
             Plan& plan) {
  const std::size_t layers = energy.size();
  const float* offset = totals.values.data() + layers;
  float whole = 0, depth = 0, variance = 0, passed = 0;
  for (const float each : energy) whole += each;
  Numbers share(layers), logs(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    share[layer] = energy[layer] / whole;
    logs[layer] = std::log(std::max(share[layer], 1e-6f));
    depth += share[layer] * static_cast<float>(layer);
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    variance += share[layer] * (static_cast<float>(layer) - depth) * (static_cast<float>(layer) - depth);
  }
  Numbers of_shower = {asked.terms[1],      asked.terms[2], totals.response(), depth,
                       std::sqrt(variance), offset[1],      offset[3]};
  for (std::size_t k = 0; k < kBudgets; ++k) {
    of_shower.push_back(std::log(plan.budgets[k] / plan.layers[0].expected[k]));
  }
  of_shower.insert(of_shower.end(), totals.values.end() - kMoments, totals.values.end());
  of_shower.insert(of_shower.end(), asked.terms.begin() + kMeanTerms, asked.terms.end());
  for (std::size_t layer = 0; layer < layers; ++layer) {
    LayerPlan& of = plan.layers[layer];
    const auto inside = within(model.mesh, of.axis, static_cast<int>(layer));
    const float log_share = logs[layer];
    passed += share[layer];
    of.inputs = of_shower;
    of.inputs.insert(of.inputs.end(), {log_share, logs[std::min(layer + 1, layers - 1)] - log_share,
                                       logs[std::min(layer + 2, layers - 1)] - log_share,
                                       logs[layer ? layer - 1 : 0] - log_share, passed, inside[0], inside[1]});
    for (std::size_t k = 0; k < layers; ++k) of.inputs.push_back(k == layer);
  }
}

}  // namespace

Plan drawn_plan(const Model::Contents& model, const Asked& asked, const float* noise) {
  const Totals totals = drawn_totals(model, asked, noise);
  const Numbers energy = layer_energies(totals, asked.energy_gev);
  const std::size_t layers = energy.size();
  const float* offset = totals.values.data() + layers;
  const auto axis = axis_of(model, asked, offset);
  const auto of_layers = expected_layers(model, asked, energy);
  float visible = 0;
  for (const float each : energy) visible += each;
  Plan found;
  found.slope = offset[3] + asked.slope_y;
  for (std::size_t k = 0; k < kBudgets; ++k) {
    found.budgets[k] = std::exp(offset[kOffsets + k]) * (counted(static_cast<int>(k)) ? 1.0f : visible);
  }
  for (std::size_t k = 0; k < kMoments; ++k) found.moments[k] = visible * offset[kOffsets + kBudgets + k];
  found.layers.resize(layers);
  std::array<std::array<float, 3>, 3> sums{};  // by each weight: energy, energy x depth, energy x depth^2
  Budgets expected{};
  for (std::size_t layer = layers; layer-- > 0;) {
    LayerPlan& of = found.layers[layer];
    of.energy = energy[layer];
    of.depth = model.mesh.depth[layer] - model.constants.depth;
    of.axis = axis[layer];
    const auto [along_x, along_y] = model.mesh.precision(layer);
    const std::array<float, 3> weights = {1, along_x, along_y};
    for (std::size_t k = 0; k < 3; ++k) {
      auto& [left, first, second] = sums[k];
      left += energy[layer] * weights[k];
      first += energy[layer] * weights[k] * of.depth;
      second += energy[layer] * weights[k] * (of.depth * of.depth);
      const float mean = left != 0 ? first / left : 0.0f, square = left != 0 ? second / left : 0.0f;
      of.rest[k] = {weights[k], left, mean, std::max(square - mean * mean, 0.0f)};
    }
    for (std::size_t k = 0; k < kBudgets; ++k) expected[k] += of_layers[layer][k];
    of.expected = expected;
  }
  float before = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    found.layers[layer].energy_before = before;
    before += energy[layer];
    found.layers[layer].cells = of_layers[layer][0] * (found.budgets[0] / expected[0]);
  }
  promise(model, asked, totals, energy, found);
  return found;
}

}  // namespace calopipe
