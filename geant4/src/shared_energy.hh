// Cells that share an energy: which of them are hit, and deposits that sum to it: `shared_energy` of the model in
// Python.
#pragma once

#include <cstdint>

#include "contents.hh"

namespace calopipe {

// Which of the cells are hit, `number` of them and each with its chance: systematic sampling in a random order.
class HitSampling {
 public:
  // `uniform` numbers, one a cell, decide the order, and `start` the first point. Writes the numbers of the hit cells,
  // in their order, into `hits`, and changes the chances so that they sum to the number.
  void draw(Numbers& chance, float number, const Numbers& uniform, float start, std::vector<std::size_t>& hits);

 private:
  std::vector<std::pair<float, std::uint32_t>> order_;
};

// Makes scores the deposits that have them, moved together so that they sum to the `energy` but for what `scale` mends.
// `spectrum` has the logarithms of energies in the layer at kScores scores.
void deposit(const float* spectrum, float energy, Numbers& scores);
// Makes scores the deposits that have them.
void energies(const float* spectrum, Numbers& scores);
// Scales the deposits to sum to the `energy`; none is of less than the least.
void scale(const Constants& of, float energy, Numbers& values);

}  // namespace calopipe
