// Draws the totals of a shower, with sharp offsets: `TotalsDensity.sample`, `totals` and `offsets` of the model.
#include "totals.hh"

#include <algorithm>
#include <cmath>

#include "plan.hh"

namespace calopipe {
namespace {

constexpr float kPi = 3.14159265358979323846f, kSmallest = 1e-6f;

// `labels` x `table`, whose columns are `columns` from `from` on.
void product(const Numbers& labels, const Numbers& table, int columns, int from, int to, float* out) {
  for (int k = from; k < to; ++k) {
    float sum = 0;
    for (std::size_t term = 0; term < labels.size(); ++term) {
      sum += labels[term] * table[term * static_cast<std::size_t>(columns) + static_cast<std::size_t>(k)];
    }
    out[k - from] = sum;
  }
}

Numbers scale_terms(const Numbers& terms) {
  Numbers found(terms.begin(), terms.begin() + kScaleTerms);
  found.insert(found.end(), terms.begin() + kMeanTerms, terms.end());
  return found;
}

class Drawing {
 public:
  Drawing(const Model::Contents& model, const Asked& asked)
      : model_(model),
        mesh_(model.mesh),
        of_(model.constants),
        asked_(asked),
        layers_(model.mesh.layers),
        totals_(model.totals()),
        mean_(static_cast<std::size_t>(totals_)),
        scale_(mean_.size()),
        blur_(kOffsets),
        hats_(interpolated(layers_, mesh_.groups())) {
    const Numbers scales = scale_terms(asked.terms);
    product(asked.terms, of_.mean, totals_, 0, totals_, mean_.data());
    product(scales, of_.scale, totals_, 0, totals_, scale_.data());
    product(scales, of_.blur_scale, kOffsets, 0, kOffsets, blur_.data());
    for (float& each : scale_) each = std::exp(each);
    for (std::size_t k = 0; k < kOffsets; ++k) blur_[k] = std::min(2.0f * std::exp(blur_[k]), of_.blur_most[k]);
  }

  Totals drawn(const float* noise) {
    const float *choice = noise, *one = choice + totals_, *two = one + totals_;
    const float *presence = two + totals_, *offset = presence + layers_;
    Totals found;
    found.there = drawn_presence(presence);
    const Numbers normal = drawn_normal(found.there, choice, one, two);
    found.values = from_normal(normal, {});
    const Numbers energy = layer_energies(found, asked_.energy_gev);
    sharpen(found.values, energy, offset);
    // the budgets depend on where the axis is in its cells
    const Numbers again = from_normal(normal, phases(found.values, energy));
    std::copy(again.end() - kBudgets, again.end(), found.values.end() - kBudgets);
    return found;
  }

 private:
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

  Numbers drawn_presence(const float* choice) {
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

  Numbers drawn_normal(const Numbers& there, const float* choice, const float* one, const float* two) {
    Numbers drawn(static_cast<std::size_t>(totals_));
    float later = 0;
    for (const float each : there) later += each;
    for (int k = 0; k < totals_; ++k) {
      if (k < layers_) {
        give_chain(drawn, there, k);
        const auto& biases = model_.of_layers.biases[static_cast<std::size_t>(k)];
        step(model_.of_layers.layers, biases[0].data(), biases[1].data());
      } else {
        give_others(drawn);
        step(model_.others[static_cast<std::size_t>(k - layers_)], nullptr, nullptr);
      }
      bool known = true;
      if (k >= 1 && k < layers_) {  // the logit of layer k - 1
        later -= there[static_cast<std::size_t>(k - 1)];
        known = there[static_cast<std::size_t>(k - 1)] > 0 && later > 0;
      }
      const int components = (k < layers_ ? model_.of_layers.layers[2] : model_.others[0][2]).outputs / 3;
      const float normal = box_muller(one[k], two[k]);
      if (known) drawn[static_cast<std::size_t>(k)] = draw_mixture(outputs_.data(), components, choice[k], normal);
    }
    return drawn;
  }

  void give_chain(const Numbers& drawn, const Numbers& there, int k) {
    inputs_.clear();
    const auto at = [&](int place) { return static_cast<std::size_t>(place); };
    for (int back = 4; back > 0; --back) inputs_.push_back(k >= back ? drawn[at(k - back)] : 0.0f);
    float sum = 0, moment = 0;
    for (int j = 0; j < k; ++j) {
      sum += drawn[at(j)];
      moment += drawn[at(j)] * (static_cast<float>(j) / static_cast<float>(layers_));
    }
    const float before = std::sqrt(static_cast<float>(std::max(k, 1)));
    inputs_.insert(inputs_.end(), {sum / before, moment / before, k > 0 ? drawn[0] : 0.0f});
    for (int layer = k - 1; layer < k + 2; ++layer) {
      inputs_.push_back(layer >= 0 && layer < layers_ ? there[at(layer)] - 1.0f : 0.0f);
    }
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
    const Numbers& where = model_.of_layers.where[at(k)];
    inputs_.insert(inputs_.end(), where.begin(), where.end());
  }

  void give_others(const Numbers& drawn) {
    inputs_.assign(drawn.begin() + layers_, drawn.end());
    const auto& where = model_.of_layers.where;
    for (std::size_t hat = 0; hat < where[0].size(); ++hat) {
      float squares = 0, sum = 0;
      for (const Numbers& each : where) squares += each[hat] * each[hat];
      const float width = std::sqrt(std::max(squares, 1.0f));
      for (std::size_t layer = 0; layer < where.size(); ++layer) sum += drawn[layer] * (where[layer][hat] / width);
      inputs_.push_back(sum);
    }
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
  }

  Numbers from_normal(const Numbers& normal, const Numbers& phases) const {
    const auto number = static_cast<std::size_t>(totals_);
    const float place = std::clamp(asked_.terms[1], -1.0f, 1.0f);
    std::array<float, kEnergies> weight;
    for (int e = 0; e < kEnergies; ++e) {
      weight[static_cast<std::size_t>(e)] =
          std::max(1 - std::abs(place - (-1.0f + 0.25f * static_cast<float>(e))) * 4, 0.0f);
    }
    Numbers found(number);
    for (std::size_t k = 0; k < number; ++k) {
      float score = 0;
      for (std::size_t j = 0; j < number; ++j) score += normal[j] * of_.colouring[k * number + j];
      const float at = std::clamp((score + 4.0f) / 0.0625f, 0.0f, kQuantiles - 1.0f);
      const float left = std::min(std::floor(at), kQuantiles - 2.0f);
      float low = 0, high = 0;
      for (std::size_t e = 0; e < kEnergies; ++e) {
        const float* table = of_.quantiles.data() + (e * kQuantiles + static_cast<std::size_t>(left)) * number + k;
        low += table[0] * weight[e];
        high += table[number] * weight[e];
      }
      found[k] = mean_[k] + scale_[k] * (low + (at - left) * (high - low));
    }
    for (std::size_t budget = 0; budget < kBudgets; ++budget) {
      const std::size_t k = number - kBudgets + budget;
      float sum = 0;
      for (std::size_t phase = 0; phase < phases.size(); ++phase) {
        sum += phases[phase] * of_.mean_of_phases[phase * kBudgets + budget];
      }
      found[k] += sum;
    }
    return found;
  }

  // Where in their cells the axes meet the layers: sums (4, groups) of waves with the period of a cell.
  Numbers phases(const Numbers& values, const Numbers& energy) const {
    const auto groups = static_cast<std::size_t>(mesh_.groups());
    Numbers found(4 * groups);
    if (mesh_.rings) return found;
    float whole = 0;
    for (const float each : energy) whole += each;
    const auto axis = axis_of(model_, asked_, values.data() + layers_);
    for (std::size_t layer = 0; layer < energy.size(); ++layer) {
      const float share = energy[layer] / whole;
      for (std::size_t k = 0; k < 2; ++k) {
        const float angle = 2 * kPi * within(mesh_, axis[layer], static_cast<int>(layer))[k];
        const float sine = share * std::sin(angle), cosine = share * std::cos(angle);
        for (std::size_t group = 0; group < groups; ++group) {
          found[k * groups + group] += sine * hats_[layer][group];
          found[(2 + k) * groups + group] += cosine * hats_[layer][group];
        }
      }
    }
    return found;
  }

  // Takes the known noise from the offsets, which densities draw: of the place first, then of the slope.
  void sharpen(Numbers& values, const Numbers& energy, const float* uniform) {
    std::array<float, kOffsets> noise{};  // place and slope along x, then along y
    const Numbers blurred = values;
    for (std::size_t part = 0; part < 2; ++part) {
      const Numbers waves = phases(values, energy);
      const auto axis = axis_of(model_, asked_, values.data() + layers_);
      for (std::size_t direction = 0; direction < 2; ++direction) {
        give_offset(values, energy, waves, axis, direction);
        if (part == 1) inputs_.push_back(noise[2 * direction]);
        const auto& net = model_.numbers[part];
        perceptron(net, inputs_.data(), outputs_);
        const std::size_t at = 2 * direction + part;
        const float normal = box_muller(uniform[4 + at], uniform[8 + at]);
        noise[at] = draw_mixture(outputs_.data(), net[2].outputs / 3, uniform[at], normal);
      }
      for (std::size_t k = 0; k < kOffsets; ++k) {
        const std::size_t at = static_cast<std::size_t>(layers_) + k;
        values[at] = blurred[at] - noise[k] * blur_[k];
      }
    }
  }

  void give_offset(const Numbers& values, const Numbers& energy, const Numbers& waves,
                   const std::vector<std::array<float, 2>>& axis, std::size_t direction) {
    const auto groups = static_cast<std::size_t>(mesh_.groups());
    inputs_.clear();
    for (std::size_t wave = 0; wave < 2; ++wave) {
      for (std::size_t group = 0; group < groups; ++group)
        inputs_.push_back(waves[(2 * wave + direction) * groups + group]);
    }
    const float span = std::max(mesh_.depth.back() - mesh_.depth.front(), 1.0f);
    inputs_.push_back((axis.back()[direction] - axis.front()[direction]) / span);
    for (std::size_t part = 0; part < 2; ++part) {
      const std::size_t at = static_cast<std::size_t>(layers_) + 2 * direction + part;
      inputs_.push_back(std::clamp((values[at] - mean_[at]) / scale_[at] / 4.0f, -2.0f, 2.0f));
    }
    inputs_.push_back(static_cast<float>(direction));
    float whole = 0, mean = 0, variance = 0;
    for (const float each : energy) whole += each;
    const auto where = [&](std::size_t layer) { return (mesh_.depth[layer] - mesh_.depth[0]) / span; };
    for (std::size_t layer = 0; layer < energy.size(); ++layer) mean += energy[layer] / whole * where(layer);
    for (std::size_t layer = 0; layer < energy.size(); ++layer) {
      variance += energy[layer] / whole * (where(layer) - mean) * (where(layer) - mean);
    }
    inputs_.insert(inputs_.end(), {mean, std::sqrt(variance)});
    inputs_.insert(inputs_.end(), asked_.inputs.begin(), asked_.inputs.end());
  }

  const Model::Contents& model_;
  const Mesh& mesh_;
  const Constants& of_;
  const Asked& asked_;
  int layers_, totals_;
  Numbers mean_, scale_, blur_;
  std::vector<std::vector<float>> hats_;
  Numbers inputs_, hidden_, second_, outputs_;
};

}  // namespace

Asked asked_of(const Model::Contents& model, const Labels& labels) {
  Asked found;
  const Mesh& mesh = model.mesh;
  const Constants& of = model.constants;
  const auto theta = static_cast<float>(labels.theta_rad);
  found.energy_gev = static_cast<float>(labels.energy_gev);
  found.theta = std::min(theta, kPi - theta);
  found.phi = model.phi_rad ? static_cast<float>(labels.phi_rad) : 0.0f;
  if (!mesh.rings) found.phi = std::abs(found.phi);
  const float e = (std::log(found.energy_gev) - of.log_energy[0]) / of.log_energy[1];
  const float a = (std::cos(found.theta) - of.cos_theta[0]) / of.cos_theta[1];
  found.terms = {1, e, a, e * e, e * a, a * a, e * e * e, e * e * a, e * (a * a), a * a * a, (a * a) * (a * a)};
  if (model.phi_rad) {
    const float phi = (std::sin(found.phi) - of.sin_phi[0]) / of.sin_phi[1];
    found.terms.insert(found.terms.end(), {phi, phi * phi, phi * e, phi * a});
  }
  for (std::size_t kind = 1; kind < model.particles.size(); ++kind) {
    const float is = model.particles[kind] == labels.pdg;
    found.terms.insert(found.terms.end(), {is, is * e, is * a, is * (e * e), is * (e * a), is * (a * a)});
  }
  found.inputs = {found.terms[1], found.terms[2], found.terms[4], found.terms[5]};
  found.inputs.insert(found.inputs.end(), found.terms.begin() + kMeanTerms, found.terms.end());
  found.slope_y = mesh.unit / std::tan(found.theta);
  found.slope_x = 0;
  if (model.phi_rad) {
    found.slope_y = mesh.unit / (std::tan(found.theta) * std::cos(found.phi));
    found.slope_x = mesh.unit * std::tan(found.phi);
  }
  return found;
}

std::vector<std::array<float, 2>> axis_of(const Model::Contents& model, const Asked& asked, const float* offset) {
  std::vector<std::array<float, 2>> found;
  for (const float each : model.mesh.depth) {
    const float depth = each - model.constants.depth;
    found.push_back({offset[0] + (offset[1] + asked.slope_x) * depth, offset[2] + (offset[3] + asked.slope_y) * depth});
  }
  return found;
}

std::array<float, 2> within(const Mesh& mesh, const std::array<float, 2>& axis, int layer) {
  std::array<float, 2> found;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::size_t at = static_cast<std::size_t>(2 * layer) + k;
    const float scaled = axis[k] * mesh.per_unit[at] + mesh.middle[at];
    found[k] = mesh.rings ? std::clamp(axis[k], -2.0f, 2.0f) : scaled - std::nearbyint(scaled);
  }
  return found;
}

Numbers layer_energies(const Totals& totals, float energy_gev) {
  const std::size_t layers = totals.there.size();
  const float visible = energy_gev * std::exp(totals.values[0]) / kUnitGev;
  float later = 0, passing = 1;
  for (const float each : totals.there) later += each;
  Numbers found(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    later -= totals.there[layer];
    const float logit = layer + 1 < layers ? sigmoid(totals.values[layer + 1]) : 1.0f;
    const float share = totals.there[layer] * (later == 0 ? 1.0f : logit);
    found[layer] = visible * passing * share;
    passing *= 1 - share;
  }
  return found;
}

Totals drawn_totals(const Model::Contents& model, const Asked& asked, const float* noise) {
  return Drawing(model, asked).drawn(noise);
}

float draw_mixture(const float* outputs, int components, float choice, float noise) {
  std::array<float, kLane> weight;
  std::copy_n(outputs, components, weight.begin());
  log_softmax(weight.data(), components);
  int chosen = 0;
  float passed = 0;
  for (int k = 0; k + 1 < components; ++k) {
    passed += std::exp(weight[static_cast<std::size_t>(k)]);
    chosen += passed < choice;
  }
  const float width = std::clamp(outputs[2 * components + chosen], -4.0f, 2.0f);
  return outputs[components + chosen] + std::exp(width) * noise;
}

float box_muller(float one, float two) {
  return std::sqrt(-2.0f * std::log(one + 0x1p-25f)) * std::cos(2 * kPi * (two + 0x1p-25f));
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void perceptron(const std::array<Dense, 3>& layers, const float* in, Numbers& out) {
  thread_local Numbers one, two;
  one.resize(static_cast<std::size_t>(layers[0].wide));
  two.resize(static_cast<std::size_t>(layers[1].wide));
  out.resize(static_cast<std::size_t>(layers[2].wide));
  affine(layers[0], in, one.data());
  silu(one.data(), layers[0].wide);
  affine(layers[1], one.data(), two.data());
  silu(two.data(), layers[1].wide);
  affine(layers[2], two.data(), out.data());
}

void log_softmax(float* values, int count) {
  const float most = *std::max_element(values, values + count);
  float sum = 0;
  for (int k = 0; k < count; ++k) sum += std::exp(values[k] - most);
  for (int k = 0; k < count; ++k) values[k] = values[k] - most - std::log(sum);
}

}  // namespace calopipe
