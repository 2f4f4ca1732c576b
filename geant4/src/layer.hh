// One layer of a shower drawn: `LayerDrawing` and `LayerProposals` of the model in Python.
#pragma once

#include <cstdint>

#include "plan.hh"

namespace calopipe {

// Deposits of one layer, in units of 0.02 GeV.
struct Drawn {
  std::vector<int> place;
  Numbers value;
};

class LayerDrawing {
 public:
  explicit LayerDrawing(const Model::Contents& model);

  // Begins a shower, whose hashed numbers are those of `keys`.
  void begin(const std::array<int, 2>& keys);
  // The deposits of the next layer, the first being 0, of which some may be of no energy.
  const Drawn& draw(int layer, const Plan& plan);

 private:
  using Distance = std::array<float, 4>;  // dx, dy, ring, radius

  void propose();
  bool in_core(float rate) const;
  float chance_of_proposal(int place) const;
  void mark(int lattice_place);
  Numbers context(const Sums* even) const;
  void normalise(const Numbers& contexts, int odd, std::size_t count);
  float drawn_share(const Numbers& given);
  void deposits(int colour, const Numbers& contexts, float energy);
  void evaluate(int colour);
  int kept(int colour, float energy);
  void deposit(int colour, int kept, float energy);
  void scale(float energy);
  void fill();
  Sums summed() const;
  void mark_beside();
  void put(Numbers& image);

  Distance distance(int place) const;
  float prior(const Numbers& table, float radius) const;
  int of_place(const Numbers& image, int place, int part, float* out, int stride) const;
  void place_numbers(int place, const Distance& distance, float* out, int stride) const;
  void uniform(unsigned counter, float* out) const { hashed_uniform(keys_.data(), counter, kBlock, out); }

  const Model::Contents& model_;
  const Mesh& mesh_;
  const Constants& of_;
  std::array<int, 2> keys_{};

  int layer_ = 0;
  const Plan* plan_ = nullptr;
  const LayerPlan* here_ = nullptr;
  std::array<int, 2> met_{}, corner_{};
  int met_place_ = 0;
  float busy_ = 0;

  std::array<Numbers, 2> images_;  // of the layers before, scaled, with an empty place
  Numbers own_;
  Sums before_{}, one_{}, two_{};

  enum Mark : std::uint8_t { kProposed = 1, kBeside = 2 };
  std::vector<std::uint8_t> marks_;
  std::vector<int> cells_;       // that are looked at
  std::vector<Distance> where_;  // of each
  Numbers hidden_, chance_, drawn_numbers_;
  Drawn colour_, all_;
  Numbers given_, shared_, scratch_, outputs_, values_;
  std::vector<int> which_;
  std::vector<float> free_;
};

}  // namespace calopipe
