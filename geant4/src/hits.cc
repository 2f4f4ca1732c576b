#include "hits.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"

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
  into.value.clear();
  for (const std::size_t cell : hits_) {
    into.place.push_back(cells.places[cell]);
    into.value.push_back(log_deposit(density, frame, cells, cell, numbers));
  }
  share(into.value);
  for (float& each : into.value) each = std::max(shared.energy * each, model_.constants.least);
  scale(model_.constants, shared.energy, into.value);
}

// The logarithm of a hit's deposit, before it is known what the deposits sum to.
float Hits::log_deposit(const CellDensity& density, const LayerFrame& frame, const Cells& cells, std::size_t cell,
                        const HashedNumbers& numbers) {
  const int components = density.deposit.outputs / 3;
  outputs_.resize(size(density.deposit.wide));
  affine(density.deposit, cells.features_of(cell), outputs_.data());
  log_softmax(outputs_.data(), components);
  const float prior = frame.prior(model_.constants.log_deposit, cells.where[cell][3]);
  for (int k = components; k < 2 * components; ++k) outputs_[size(k)] += prior;
  std::array<float, kBlock> drawn;
  numbers.of_hit(frame.layer, cells.places[cell], drawn.data());
  return draw_mixture(outputs_.data(), components, drawn[0], box_muller(drawn[1], drawn[2]));
}

}  // namespace calopipe
