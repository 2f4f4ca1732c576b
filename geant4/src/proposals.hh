// Which cells of a layer are looked at: `Proposals` of the model in Python.
#pragma once

#include <cstdint>

#include "frame.hh"
#include "numbers.hh"

namespace calopipe {

class Proposals {
 public:
  explicit Proposals(const Model::Contents& model);

  // Begins a layer.
  void propose(const LayerFrame& frame, const HashedNumbers& numbers);
  // Adds the cells that share a side with a cell of `drawn` that holds energy.
  void add_beside(const LayerFrame& frame, const Drawn& drawn);
  // Writes the places of a colour's cells that are looked at, rising, to `into`.
  void cells(const LayerFrame& frame, int colour, std::vector<int>& into) const;
  // The chance that a cell is looked at.
  float chance(const LayerFrame& frame, int place) const;

 private:
  using Bits = std::vector<std::uint64_t>;  // one bit a place

  void mark(int lattice_place);
  // Whether cells of this rate are in the core: they are always looked at.
  bool in_core(float rate) const { return rate * std::max(busy_, 1.0f) > kCoreRate && rate > least_; }

  static constexpr float kCoreRate = 1.2f;

  const Mesh& mesh_;
  const Constants& of_;
  std::array<int, 2> corner_{};  // where the lattice begins
  float busy_ = 0, least_ = 0;   // expected hits over those of the average layer; the core holds higher rates than this
  std::array<Bits, 2> parity_;   // the two colours of the chessboard
  std::vector<Bits> exists_;     // of each layer
  Bits proposed_, beside_;
};

}  // namespace calopipe
