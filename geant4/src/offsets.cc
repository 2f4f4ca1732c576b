#include "offsets.hh"

#include <algorithm>
#include <cmath>

#include "frame.hh"
#include "networks.hh"

namespace calopipe {

Offsets::Offsets(const Model::Contents& model, const Asked& asked, const Copula& copula)
    : model_(model),
      mesh_(model.mesh),
      asked_(asked),
      copula_(copula),
      hats_(interpolated(mesh_.layers, mesh_.groups())),
      blur_(product(scale_terms(asked.terms), model.constants.blur_scale, kOffsets)) {
  for (std::size_t k = 0; k < kOffsets; ++k) {
    blur_[k] = std::min(2.0f * std::exp(blur_[k]), model.constants.blur_most[k]);
  }
}

Numbers Offsets::phases(const Numbers& values, const Numbers& energy) const {
  const auto groups = static_cast<std::size_t>(mesh_.groups());
  Numbers found(4 * groups);
  if (mesh_.rings) return found;
  float whole = 0;
  for (const float each : energy) whole += each;
  const auto axis = axis_of(model_, asked_, values.data() + mesh_.layers);
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

void Offsets::sharpen(Numbers& values, const Numbers& energy, const float* uniform) {
  std::array<float, kOffsets> noise{};  // place and slope along x, then along y
  const Numbers blurred = values;
  for (std::size_t part = 0; part < 2; ++part) {
    const Numbers waves = phases(values, energy);
    const auto axis = axis_of(model_, asked_, values.data() + mesh_.layers);
    for (std::size_t direction = 0; direction < 2; ++direction) {
      give(values, energy, waves, axis, direction);
      if (part == 1) inputs_.push_back(noise[2 * direction]);
      const auto& net = model_.numbers[part];
      perceptron(net, inputs_.data(), outputs_);
      const std::size_t at = 2 * direction + part;
      const float normal = box_muller(uniform[4 + at], uniform[8 + at]);
      noise[at] = draw_mixture(outputs_.data(), net[2].outputs / 3, uniform[at], normal);
    }
    for (std::size_t k = 0; k < kOffsets; ++k) {
      const std::size_t at = static_cast<std::size_t>(mesh_.layers) + k;
      values[at] = blurred[at] - noise[k] * blur_[k];
    }
  }
}

void Offsets::give(const Numbers& values, const Numbers& energy, const Numbers& waves,
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
    const std::size_t at = static_cast<std::size_t>(mesh_.layers) + 2 * direction + part;
    inputs_.push_back(std::clamp(copula_.standardised(values, at) / 4.0f, -2.0f, 2.0f));
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

}  // namespace calopipe
