#include "hits.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"
#include "sharing.hh"

namespace calopipe {

void Hits::draw(int colour, const LayerFrame& frame, const Cells& cells, const Proposals& proposals,
                const HashedNumbers& numbers, const Shared& shared, Drawn& into) {
  const CellDensity& density = model_.cells[size(colour)];
  chance_.resize(cells.places.size());
  for (std::size_t cell = 0; cell < cells.places.size(); ++cell) {
    const float proposed = proposals.chance(frame, cells.places[cell]);
    chance_[cell] = std::min(sigmoid(cells.log_odds(frame, density, cell)) / proposed, 1.0f);
  }
  numbers.of_cells(frame.layer, cells.places, uniform_);
  sampling_.draw(chance_, shared.number, uniform_, shared.start, hits_);
  into.place.clear();
  logits_.clear();
  for (const std::size_t cell : hits_) {
    into.place.push_back(cells.places[cell]);
    logits_.push_back(logit(density, frame, cells, cell, numbers, shared.energy));
  }
  share(logits_, into.value);
  for (float& each : into.value) each = std::max(shared.energy * each, model_.constants.least);
  scale(model_.constants, shared.energy, into.value);
}

// The logit of the share that a hit has of the energy, before it is known that shares sum to 1.
HitLogit Hits::logit(const CellDensity& density, const LayerFrame& frame, const Cells& cells, std::size_t cell,
                     const HashedNumbers& numbers, float energy) {
  const int components = density.deposit.outputs / 3;
  outputs_.resize(size(density.deposit.wide));
  affine(density.deposit, cells.features_of(cell), outputs_.data());
  log_softmax(outputs_.data(), components);
  const float prior = prior_logit(frame.prior(model_.constants.log_deposit, cells.where[cell][3]), energy);
  float mean = 0, share = 0;
  for (int k = 0; k < components; ++k) {
    float& middle = outputs_[size(components + k)];
    middle += prior;
    const float weight = std::exp(outputs_[size(k)]);
    mean += weight * middle;
    share += weight * sigmoid(middle);
  }
  std::array<float, kBlock> drawn;
  numbers.of_hit(frame.layer, cells.places[cell], drawn.data());
  const float found = draw_mixture(outputs_.data(), components, drawn[0], box_muller(drawn[1], drawn[2]));
  return {found, mean, share * (1 - share)};
}

}  // namespace calopipe
