#include "totals.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"
#include "offsets.hh"

namespace calopipe {
namespace {

// Where along the layers the energy is, from the `share` of each layer: mean, width, and what groups of layers hold.
Numbers shape(const Numbers& share) {
  const std::size_t layers = share.size();
  const auto at = [&](std::size_t layer) { return static_cast<float>(layer) / static_cast<float>(layers); };
  float mean = 0, square = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) mean += share[layer] * at(layer);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    square += share[layer] * (at(layer) - mean) * (at(layer) - mean);
  }
  Numbers found{4 * mean - 1, 8 * std::sqrt(square) - 1};
  const auto hats = interpolated(static_cast<int>(layers), kHats);
  for (std::size_t group = 0; group < kHats; ++group) {
    float held = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) held += share[layer] * hats[layer][group];
    found.push_back(std::log(held + 1e-4f) / 2 + 1);
  }
  return found;
}

// Draws the totals as normal numbers, one after the other: `TotalsDensity` of the model in Python.
class NormalTotals {
 public:
  NormalTotals(const Model::Contents& model, const Asked& asked, const Copula& copula)
      : model_(model),
        of_(model.constants),
        asked_(asked),
        copula_(copula),
        layers_(model.mesh.layers),
        totals_(model.totals()) {}

  // Which layers hold energy: 1 or 0 for each.
  Numbers presence(const float* choice) {
    Numbers drawn(static_cast<std::size_t>(layers_));
    inputs_.assign(drawn.size(), 0.0f);
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
    bool none = true;
    for (std::size_t k = 0; k < drawn.size(); ++k) {
      step(model_.presence[k], nullptr, nullptr);
      const bool empty = choice[k] >= sigmoid(outputs_[0] + of_.presence[k]);
      inputs_[k] = empty ? -1.0f : 0.0f;
      drawn[k] = empty ? 0.0f : 1.0f;
      none = none && empty;
    }
    if (none) drawn[0] = 1;
    return drawn;
  }

  Numbers drawn(const Numbers& there, const float* choice, const float* one, const float* two) {
    Numbers drawn(static_cast<std::size_t>(totals_)), share(there.size());
    const auto draw = [&](std::size_t k, const Dense& last) {
      drawn[k] = draw_mixture(outputs_.data(), last.outputs / 3, choice[k], box_muller(one[k], two[k]));
    };
    const std::size_t first = there.size() - 1;  // the last layer takes what is left
    float later = 0, left = 1;
    for (const float each : there) later += each;
    for (std::size_t k = 0; k < first; ++k) {
      later -= there[k];
      if (there[k] == 0) continue;
      if (later > 0) {
        give_chain(drawn, there, share, static_cast<int>(k));
        step(model_.of_layers.layers, model_.of_layers.biases[k][0].data(), model_.of_layers.biases[k][1].data());
        draw(k, model_.of_layers.layers[2]);
      }
      share[k] = left * (later > 0 ? sigmoid(copula_.total(drawn, k)) : 1.0f);
      left -= share[k];
    }
    share.back() = left;
    give_others(drawn, share);
    for (std::size_t k = first; k < drawn.size(); ++k) {
      step(model_.others[k - first], nullptr, nullptr);
      draw(k, model_.others[0][2]);
      inputs_[k - first] = drawn[k];
    }
    return drawn;
  }

 private:
  // The inputs of the total of layer `k`; `share` is what each layer before holds of the visible energy.
  void give_chain(const Numbers& drawn, const Numbers& there, const Numbers& share, int k) {
    inputs_.clear();
    const auto at = [&](int place) { return static_cast<std::size_t>(place); };
    for (int back = 4; back > 0; --back) inputs_.push_back(k >= back ? drawn[at(k - back)] : 0.0f);
    float sum = 0, moment = 0;
    for (int j = 0; j < k; ++j) {
      sum += drawn[at(j)];
      moment += drawn[at(j)] * (static_cast<float>(j) / static_cast<float>(layers_ - 1));
    }
    const float before = std::sqrt(static_cast<float>(std::max(k, 1)));
    inputs_.insert(inputs_.end(), {sum / before, moment / before});
    for (int layer = k; layer < k + 3; ++layer) inputs_.push_back(layer < layers_ ? there[at(layer)] - 1.0f : 0.0f);
    for (int layer = k - kLayersBefore; layer < k; ++layer) {
      inputs_.push_back(std::log((layer >= 0 ? share[at(layer)] : 0.0f) + 1e-4f) / 2 + 2);
    }
    give_to_come(there, k);
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
    const Numbers& where = model_.of_layers.where[at(k)];
    inputs_.insert(inputs_.end(), where.begin(), where.end());
  }

  // How many layers with energy come after `layer`, and how far the last and the next of them are.
  void give_to_come(const Numbers& there, int layer) {
    float later = 0;
    int last = layer, next = layer + 8;
    for (int k = layers_ - 1; k > layer; --k) {
      if (there[static_cast<std::size_t>(k)] == 0) continue;
      later += 1;
      last = std::max(last, k);
      next = std::min(next, k);
    }
    const auto layers = static_cast<float>(layers_);
    inputs_.insert(inputs_.end(), {std::log(later + 0.5f) - 2, 4 * static_cast<float>(last - layer) / layers - 1,
                                   static_cast<float>(next - layer) / 4});
  }

  // The inputs of the other totals, without these totals themselves; `share` is what each layer holds of the visible
  // energy.
  void give_others(const Numbers& drawn, const Numbers& share) {
    inputs_.assign(drawn.size() + 1 - share.size(), 0.0f);
    const auto& where = model_.of_layers.where;
    for (std::size_t hat = 0; hat < where[0].size(); ++hat) {
      float squares = 0, sum = 0;
      for (const Numbers& each : where) squares += each[hat] * each[hat];
      const float width = std::sqrt(std::max(squares, 1.0f));
      for (std::size_t layer = 0; layer + 1 < share.size(); ++layer) sum += drawn[layer] * (where[layer][hat] / width);
      inputs_.push_back(sum);
    }
    const Numbers where_among = shape(share);
    inputs_.insert(inputs_.end(), where_among.begin(), where_among.end());
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
  }

  void step(const std::array<Dense, 3>& net, const float* first_bias, const float* last_bias) {
    hidden_.resize(static_cast<std::size_t>(net[0].wide));
    second_.resize(hidden_.size());
    outputs_.resize(static_cast<std::size_t>(net[2].wide));
    affine(net[0], inputs_.data(), hidden_.data(), first_bias);
    silu(hidden_.data(), net[0].wide);
    affine(net[1], hidden_.data(), second_.data());
    add_silu(hidden_.data(), second_.data(), net[1].wide);
    affine(net[2], hidden_.data(), outputs_.data(), last_bias);
  }

  const Model::Contents& model_;
  const Constants& of_;
  const Asked& asked_;
  const Copula& copula_;
  const int layers_, totals_;
  Numbers inputs_, hidden_, second_, outputs_;
};

}  // namespace

Numbers layer_energies(const Totals& totals, float energy_gev) {
  const std::size_t layers = totals.there.size();
  const float visible = energy_gev * std::exp(totals.response()) / kUnitGev;
  float later = 0, passing = 1;
  for (const float each : totals.there) later += each;
  Numbers found(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    later -= totals.there[layer];
    const float logit = layer + 1 < layers ? sigmoid(totals.values[layer]) : 1.0f;
    const float share = totals.there[layer] * (later == 0 ? 1.0f : logit);
    found[layer] = visible * passing * share;
    passing *= 1 - share;
  }
  return found;
}

namespace {

// The terms, other than labels, in which the means of budgets and moments are linear: `totals.budget_terms` in Python.
Numbers budget_terms(const Totals& totals, Numbers energy, const Offsets& offsets) {
  Numbers found = offsets.phases(totals.values, energy);
  float whole = 0;
  for (const float each : energy) whole += each;
  for (float& each : energy) each /= whole;
  const Numbers where_among = shape(energy);
  found.insert(found.end(), where_among.begin(), where_among.end());
  found.push_back(totals.response());
  return found;
}

}  // namespace

Totals drawn_totals(const Model::Contents& model, const Asked& asked, const float* noise) {
  const int number = model.totals();
  const float *choice = noise, *one = choice + number, *two = one + number;
  const float *presence = two + number, *offset = presence + model.mesh.layers;
  const Copula copula(model, asked);
  NormalTotals normal_totals(model, asked, copula);
  Offsets offsets(model, asked, copula);
  Totals found;
  found.there = normal_totals.presence(presence);
  const Numbers normal = normal_totals.drawn(found.there, choice, one, two);
  found.values = copula.totals(normal, {});
  const Numbers energy = layer_energies(found, asked.energy_gev);
  offsets.sharpen(found.values, energy, offset);
  // budgets and moments depend on the layers, and on where the axis is in its cells
  const Numbers again = copula.totals(normal, budget_terms(found, energy, offsets));
  std::copy(again.end() - kLast, again.end(), found.values.end() - kLast);
  return found;
}

}  // namespace calopipe
