#include "hits.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"

namespace calopipe {

void Hits::draw(int colour, const LayerFrame& frame, const Cells& cells, const Proposals& proposals,
                const HashedNumbers& numbers, const Numbers& contexts, float energy, Drawn& into) {
  const CellDensity& density = model_.cells[size(colour)];
  chance_.resize(cells.places.size());
  for (std::size_t cell = 0; cell < cells.places.size(); ++cell) {
    const float proposed = proposals.chance(frame, cells.places[cell]);
    chance_[cell] = std::min(sigmoid(cells.log_odds(frame, density, cell)) / proposed, 1.0f);
  }
  const std::size_t which = kept(colour, frame.layer, cells, numbers, contexts, energy);
  into.place.clear();
  into.value.clear();
  free_.clear();
  for (std::size_t cell = 0; cell < cells.places.size(); ++cell) {
    if (drawn_[cell * kBlock + which] < chance_[cell]) deposit(density, frame, cells, cell, numbers, into);
  }
  stretch(energy, into.value);
  scale(of_, energy, into.value);
}

// Which of kBlock independent draws of the hits is kept, so that their number is as likely as the density says.
std::size_t Hits::kept(int colour, int layer, const Cells& cells, const HashedNumbers& numbers, const Numbers& contexts,
                       float energy) {
  std::array<int, kBlock> hits{};
  drawn_.resize(cells.places.size() * kBlock);
  for (std::size_t cell = 0; cell < cells.places.size(); ++cell) {
    float* drawn = drawn_.data() + cell * kBlock;
    numbers.of_cell(layer, cells.places[cell], 0, drawn);
    for (std::size_t k = 0; k < kBlock; ++k) hits[k] += drawn[k] < chance_[cell];
  }
  const auto chances = independent();
  perceptron(model_.counts[size(colour)], contexts.data(), outputs_);
  log_softmax(outputs_.data(), kCounts);
  if (energy > 0) outputs_[0] -= 1e3f;  // what has energy has a hit
  std::array<float, kBlock> choice;
  numbers.of_layer(layer, colour, choice.data());
  std::size_t best = 0;
  float highest = 0;
  for (std::size_t k = 0; k < kBlock; ++k) {
    const std::size_t number = size(std::min(hits[k], kCounts - 1));
    const auto log_chance = static_cast<float>(std::log(std::max(chances[number], 1e-9)));
    const float score = outputs_[number] - log_chance - std::log(-std::log(choice[k] + 0x1p-26f));
    if (k == 0 || score > highest) {
      best = k;
      highest = score;
    }
  }
  return best;
}

// How likely each number of hits is where cells are hit independently: by elementary symmetric polynomials.
std::array<double, kCounts> Hits::independent() const {
  double none = 0, one = 0, two = 0, three = 0;
  for (const float each : chance_) {
    const double chance = std::min(each, 0.999f), odds = chance / (1 - chance);
    none += std::log(1 - chance);
    one += odds;
    two += odds * odds;
    three += odds * odds * odds;
  }
  const std::array<double, 4> symmetric = {1, one, (one * one - two) / 2,
                                           (one * one * one - 3 * one * two + 2 * three) / 6};
  std::array<double, kCounts> found;
  double more = 1;
  for (std::size_t k = 0; k < 4; ++k) {
    found[k] = std::exp(none) * std::max(symmetric[k], 0.0);
    more -= found[k];
  }
  found[4] = more;
  return found;
}

void Hits::deposit(const CellDensity& density, const LayerFrame& frame, const Cells& cells, std::size_t cell,
                   const HashedNumbers& numbers, Drawn& into) {
  constexpr float kLeastFree = 0.1f;
  const std::size_t components = size(density.deposit.outputs / 3);
  outputs_.resize(size(density.deposit.wide));
  affine(density.deposit, cells.features_of(cell), outputs_.data());
  log_softmax(outputs_.data(), density.deposit.outputs / 3);
  const float before = frame.prior(of_.log_deposit, cells.where[cell][3]);
  float mean = 0;
  for (std::size_t k = 0; k < components; ++k) {
    float& middle = outputs_[components + k];
    middle += before;
    const float width = std::clamp(outputs_[2 * components + k], -4.0f, 2.0f);
    mean += std::exp(outputs_[k] + middle + 0.5f * std::exp(2 * width));
  }
  std::array<float, kBlock> drawn;
  numbers.of_cell(frame.layer, cells.places[cell], 1, drawn.data());
  const float log_value =
      draw_mixture(outputs_.data(), static_cast<int>(components), drawn[0], box_muller(drawn[1], drawn[2]));
  into.place.push_back(cells.places[cell]);
  into.value.push_back(std::max(std::exp(log_value), of_.least));
  free_.push_back(std::clamp(mean / into.value.back(), kLeastFree, 1.0f));
}

// Changes the deposits, each as it is free to, so that they sum to about the `energy`.
void Hits::stretch(float energy, Numbers& values) const {
  constexpr int kNewtonSteps = 4;
  for (int step = 0; step < kNewtonSteps; ++step) {
    float got = 0, give = 0;
    for (std::size_t k = 0; k < free_.size(); ++k) {
      got += values[k];
      give += values[k] * free_[k];
    }
    if (give == 0) break;
    const float by = clip(std::log((energy + of_.least) / (got + of_.least)) * (got / give), 3);
    for (std::size_t k = 0; k < free_.size(); ++k) values[k] *= std::exp(free_[k] * by);
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
