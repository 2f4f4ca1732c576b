#include "sharing.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"

namespace calopipe {
namespace {

constexpr float kBetweenReach = 9.0f;  // the greatest logit of shares other than 0 and 1
constexpr float kHalfStep = 0x1p-25f, kLeastExpected = 0.3f, kFar = 60.0f;

}  // namespace

float drawn_share(Numbers& outputs, int components, const float* numbers) {
  log_softmax(outputs.data(), kCases);
  const float nothing = std::exp(outputs[0]), all = std::exp(outputs[1]);
  if (numbers[0] < nothing) return -kReach;
  if (numbers[0] < nothing + all) return kReach;
  const float normal = box_muller(numbers[2], numbers[3]);
  const float logit = draw_mixture(outputs.data() + kCases, components, numbers[1], normal);
  return std::clamp(logit, -kBetweenReach, kBetweenReach);
}

float share_of(float logit) { return std::abs(logit) < kReach ? sigmoid(logit) : static_cast<float>(logit > 0); }

float drawn_count(float expected, float most, const Numbers& outputs, int components, const float* numbers) {
  const float place = std::min(numbers[1] + kHalfStep, 1 - 0x1p-24f);  // float32 may round the sum to 1
  const float logistic = std::log(place) - std::log(1 - place);
  const float usual = std::max(std::min(expected, most) - 0.5f, kLeastExpected);
  const float logit = draw_mixture(outputs.data(), components, numbers[0], logistic) +
                      (std::log(usual) - std::log(std::max(most - usual, kLeastExpected)));
  return std::min(1 + std::floor(most / (1 + std::exp(std::clamp(-logit, -kFar, kFar)))), most);
}

}  // namespace calopipe
