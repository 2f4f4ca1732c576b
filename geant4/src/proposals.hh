// Which cells of a layer are looked at: `LayerProposals` of the model in Python.
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
  // Adds the cells that share a side with one that holds energy.
  void add_beside(const LayerFrame& frame, const Drawn& drawn);
  // The cells of a colour, in the order of their places.
  void cells(const LayerFrame& frame, int colour, std::vector<int>& into) const;
  // With which chance a cell is looked at.
  float chance(const LayerFrame& frame, int place) const;

 private:
  enum Mark : std::uint8_t { kProposed = 1, kBeside = 2 };

  void mark(const LayerFrame& frame, int lattice_place);
  bool in_core(const LayerFrame& frame, float rate) const;

  const Mesh& mesh_;
  const Constants& of_;
  std::array<int, 2> corner_{};  // where the lattice begins
  float busy_ = 0;
  std::vector<std::uint8_t> marks_;
};

}  // namespace calopipe
