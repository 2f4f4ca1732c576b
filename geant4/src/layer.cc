#include "layer.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"
#include "sharing.hh"

namespace calopipe {

LayerDrawing::LayerDrawing(const Model::Contents& model) : model_(model), proposals_(model), hits_(model) {}

void LayerDrawing::begin() {
  for (Image* each : {&images_.one, &images_.two}) each->clear(size(model_.mesh.places));
  before_ = {};
}

const Drawn& LayerDrawing::draw(int layer, const Plan& plan, const HashedNumbers& numbers) {
  const LayerFrame frame(model_, plan, layer);
  const float energy = frame.plan.energy;
  images_.own.assign(size(model_.mesh.places + 1), 0.0f);
  proposals_.propose(frame, numbers);

  Numbers contexts = context(plan, frame, before_);
  const float logit = drawn_share(frame, contexts, numbers), of_even = share_of(logit) * energy;
  add_share(logit, energy, contexts);
  float held = deposits(0, frame, contexts, of_even, numbers);
  all_ = colour_;
  const Sums even = frame.sums(all_);
  add_scaled(model_.constants, all_, images_.own);
  proposals_.add_beside(frame, all_);
  contexts = context(plan, frame, before_, &even, of_even);
  held += deposits(1, frame, contexts, energy - of_even, numbers);
  all_.place.insert(all_.place.end(), colour_.place.begin(), colour_.place.end());
  all_.value.insert(all_.value.end(), colour_.value.begin(), colour_.value.end());
  fill(frame, held);

  before_.two = before_.one;
  before_.one = frame.sums(all_);
  for (std::size_t k = 0; k < kSums; ++k) before_.all[k] += before_.one[k];
  std::swap(images_.one, images_.two);
  images_.one.clear(size(model_.mesh.places));
  add_scaled(model_.constants, all_, images_.one.scaled);
  const float whole = before_.one[kEnergy];
  for (std::size_t k = 0; whole > 0 && k < all_.place.size(); ++k) {
    images_.one.share[size(all_.place[k])] += all_.value[k] / whole;
  }
  if (layer == 0) images_.two = images_.one;
  return all_;
}

float LayerDrawing::drawn_share(const LayerFrame& frame, const Numbers& contexts, const HashedNumbers& numbers) {
  if (frame.most(0) == 0 || frame.most(1) == 0) return frame.most(0) > 0 ? kReach : -kReach;
  normalise(model_.constants, 0, contexts, given_);
  const std::size_t begin = given_.size();
  given_.resize(begin + size(model_.mesh.of_met()));
  known_of_met(frame, images_, given_.data() + begin);
  const auto& net = model_.numbers[2];
  perceptron(net, given_.data(), outputs_);
  std::array<float, kBlock> drawn;
  numbers.of_layer(frame.layer, 0, drawn.data());
  return calopipe::drawn_share(outputs_, (net[2].outputs - kCases) / 3, drawn.data());
}

// How many cells of a colour are hit, and how much is promised to them.
Shared LayerDrawing::shared(int colour, const LayerFrame& frame, const Numbers& contexts, float energy,
                            const HashedNumbers& numbers) {
  std::array<float, kBlock> drawn;
  numbers.of_layer(frame.layer, 1 + colour, drawn.data());
  if (!(energy > 0)) return {energy, 0, drawn[2]};
  normalise(model_.constants, colour, contexts, given_);
  const auto& net = model_.counts[size(colour)];
  perceptron(net, given_.data(), outputs_);
  const float count = drawn_count(frame.plan.cells / 2, frame.most(colour), outputs_, net[2].outputs / 3, drawn.data());
  return {energy, std::min(count, std::max(std::floor(energy / model_.constants.least), 1.0f)), drawn[2]};
}

// Draws the deposits of a colour to which `energy` is promised. Returns their sum.
float LayerDrawing::deposits(int colour, const LayerFrame& frame, Numbers& contexts, float energy,
                             const HashedNumbers& numbers) {
  const Shared shared_of = shared(colour, frame, contexts, energy, numbers);
  add_count(shared_of.number, energy, contexts);
  normalise(model_.constants, colour, contexts, given_);
  proposals_.cells(frame, colour, cells_.places);
  cells_.evaluate(frame, model_.cells[size(colour)], given_, images_);
  return hits_.draw(colour, frame, cells_, proposals_, numbers, shared_of, colour_);
}

// Scales the deposits of both colours to sum to `held`. If no cell was hit, the cell that the axis meets gets the
// layer's energy.
void LayerDrawing::fill(const LayerFrame& frame, float held) {
  scale(model_.constants, held, all_.value);
  float got = 0;
  for (const float each : all_.value) got += each;
  if (got > 0) return;
  all_.place.assign(1, frame.met_place);
  all_.value.assign(1, frame.plan.energy);
}

}  // namespace calopipe
