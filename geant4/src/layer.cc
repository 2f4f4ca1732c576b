#include "layer.hh"

#include "networks.hh"

namespace calopipe {

LayerDrawing::LayerDrawing(const Model::Contents& model) : model_(model), proposals_(model), hits_(model) {}

void LayerDrawing::begin() {
  for (Numbers* each : {&images_.one, &images_.two}) each->assign(size(model_.mesh.places + 1), 0.0f);
  before_ = {};
}

const Drawn& LayerDrawing::draw(int layer, const Plan& plan, const HashedNumbers& numbers) {
  const LayerFrame frame(model_, plan, layer);
  const float energy = frame.plan.energy;
  images_.own.assign(size(model_.mesh.places + 1), 0.0f);
  proposals_.propose(frame, numbers);

  Numbers contexts = context(plan, frame, before_, nullptr);
  const float logit = drawn_share(frame, contexts, numbers);
  add_share(logit, energy, contexts);
  deposits(0, frame, contexts, share_of(logit) * energy, numbers);
  all_ = colour_;
  const Sums even = frame.sums(all_);
  add_scaled(model_.constants, all_, images_.own);
  proposals_.add_beside(frame, all_);
  const Numbers of_odd = context(plan, frame, before_, &even);
  deposits(1, frame, of_odd, std::max(energy - even[kEnergy], 0.0f), numbers);
  all_.place.insert(all_.place.end(), colour_.place.begin(), colour_.place.end());
  all_.value.insert(all_.value.end(), colour_.value.begin(), colour_.value.end());
  fill(frame);

  before_.two = before_.one;
  before_.one = frame.sums(all_);
  for (std::size_t k = 0; k < kSums; ++k) before_.all[k] += before_.one[k];
  std::swap(images_.one, images_.two);
  images_.one.assign(images_.one.size(), 0.0f);
  add_scaled(model_.constants, all_, images_.one);
  return all_;
}

float LayerDrawing::drawn_share(const LayerFrame& frame, const Numbers& contexts, const HashedNumbers& numbers) {
  normalise(model_.constants, 0, contexts, given_);
  const std::size_t begin = given_.size();
  given_.resize(begin + 2 * kAround + kPlaceNumbers);
  known_of_place(frame, images_, frame.met_place, given_.data() + begin);
  const auto& net = model_.numbers[2];
  perceptron(net, given_.data(), outputs_);
  std::array<float, kBlock> drawn;
  numbers.of_layer(frame.layer, 2, drawn.data());
  return draw_mixture(outputs_.data(), net[2].outputs / 3, drawn[0], box_muller(drawn[1], drawn[2]));
}

// Draws the deposits of a colour, which are to sum to `energy`.
void LayerDrawing::deposits(int colour, const LayerFrame& frame, const Numbers& contexts, float energy,
                            const HashedNumbers& numbers) {
  proposals_.cells(frame, colour, cells_.places);
  normalise(model_.constants, colour, contexts, given_);
  cells_.evaluate(frame, model_.cells[size(colour)], given_, images_);
  hits_.draw(colour, frame, cells_, proposals_, numbers, given_, energy, colour_);
}

// The deposits of both colours scaled to the layer's energy, which is on the axis where no cell was hit.
void LayerDrawing::fill(const LayerFrame& frame) {
  scale(model_.constants, frame.plan.energy, all_.value);
  float got = 0;
  for (const float each : all_.value) got += each;
  if (got > 0) return;
  all_.place.assign(1, frame.met_place);
  all_.value.assign(1, frame.plan.energy);
}

}  // namespace calopipe
