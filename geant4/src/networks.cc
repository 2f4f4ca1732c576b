#include "networks.hh"

#include <algorithm>
#include <cmath>

namespace calopipe {

float draw_mixture(const float* outputs, int components, float choice, float noise) {
  std::array<float, kLane> passed;  // sums of the weights up to each component
  const float most = *std::max_element(outputs, outputs + components);
  float sum = 0;
  for (int k = 0; k < components; ++k) passed[static_cast<std::size_t>(k)] = sum += std::exp(outputs[k] - most);
  int chosen = 0;
  for (int k = 0; k + 1 < components; ++k) chosen += passed[static_cast<std::size_t>(k)] < choice * sum;
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
