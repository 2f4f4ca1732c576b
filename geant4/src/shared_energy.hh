// Cells that share an energy: which of them are hit, and deposits that sum to the energy. `shared_energy` of the model
// in Python.
#pragma once

#include <cstdint>

#include "contents.hh"

namespace calopipe {

// Chooses the cells that are hit, `number` of them, each with its chance: systematic sampling in a random order.
class HitSampling {
 public:
  // `uniform` numbers, one a cell, decide the order; `start` decides the first point. Writes the indices of the hit
  // cells, rising, into `hits`. Changes the chances so that they sum to `number`.
  void draw(Numbers& chance, float number, const Numbers& uniform, float start, std::vector<std::size_t>& hits);

 private:
  std::vector<std::pair<float, std::uint32_t>> order_;
};

// Replaces `scores` by deposits. All scores are shifted together, until the deposits sum to `energy`; `scale` mends the
// rest. `spectrum` holds the log energies in the layer at kScores scores.
void deposit(const float* spectrum, float energy, Numbers& scores);
// Replaces `scores` by the deposits that have these scores.
void energies(const float* spectrum, Numbers& scores);
// Scales the deposits `values` to sum to `energy`; then none is less than `of.least`, except 0.
void scale(const Constants& of, float energy, Numbers& values);

}  // namespace calopipe
