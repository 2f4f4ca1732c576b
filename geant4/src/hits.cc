#include "hits.hh"

#include <algorithm>
#include <cmath>

#include "networks.hh"

namespace calopipe {
namespace {

constexpr float kPromiseBlur = 0.3f;  // of the log of the energy that is promised to a single hit

}  // namespace

float Hits::draw(int colour, const LayerFrame& frame, const Cells& cells, const Proposals& proposals,
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
  for (const std::size_t cell : hits_) into.place.push_back(cells.places[cell]);
  scores(density, frame, cells, numbers, into.value);
  const float* spectrum = model_.constants.spectra.data() + frame.layer * kScores;
  const bool alone = shared.number <= kAlone;
  if (alone) {
    energies(spectrum, into.value);
  } else {
    deposit(spectrum, shared.energy, into.value);
  }
  float held = 0;
  for (float& each : into.value) held += each = std::max(each, model_.constants.least);
  held = alone ? std::min(held, shared.energy * std::exp(5 * kPromiseBlur)) : shared.energy;
  scale(model_.constants, held, into.value);
  return held;
}

// Draws the scores of the hits' deposits, before the deposits are made to sum to the energy.
void Hits::scores(const CellDensity& density, const LayerFrame& frame, const Cells& cells, const HashedNumbers& numbers,
                  Numbers& into) {
  const Dense& deposit = density.deposit;
  const std::size_t inputs = size(deposit.inputs), wide = size(deposit.wide);
  const int components = deposit.outputs / 3;
  features_.resize(kRows * inputs);
  outputs_.resize(kRows * wide);
  into.clear();
  for (std::size_t first = 0; first < hits_.size(); first += kRows) {
    const std::size_t rows = std::min<std::size_t>(kRows, hits_.size() - first);  // the rows after these are not read
    for (std::size_t r = 0; r < rows; ++r)
      std::copy_n(cells.features_of(hits_[first + r]), inputs, features_.data() + r * inputs);
    affine_of_rows(deposit, features_.data(), outputs_.data());
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t cell = hits_[first + r];
      float* of_hit = outputs_.data() + r * wide;
      const float prior = frame.prior(model_.constants.score, cells.where[cell][3]);
      for (int k = components; k < 2 * components; ++k) of_hit[k] += prior;
      std::array<float, kBlock> drawn;
      numbers.of_hit(frame.layer, cells.places[cell], drawn.data());
      into.push_back(draw_mixture(of_hit, components, drawn[0], box_muller(drawn[1], drawn[2])));
    }
  }
}

}  // namespace calopipe
