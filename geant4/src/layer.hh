// Draws the layers of a shower, one after the other: `LayerDrawing` of the model in Python.
#pragma once

#include "context.hh"
#include "hits.hh"

namespace calopipe {

class LayerDrawing {
 public:
  explicit LayerDrawing(const Model::Contents& model);

  // Begins a shower.
  void begin();
  // Draws the deposits of the next layer; layers count from 0. Some deposits may hold no energy.
  const Drawn& draw(int layer, const Plan& plan, const HashedNumbers& numbers);

 private:
  float drawn_share(const LayerFrame& frame, const Numbers& contexts, const HashedNumbers& numbers);
  Shared shared(int colour, const LayerFrame& frame, const Numbers& contexts, float energy,
                const HashedNumbers& numbers);
  float deposits(int colour, const LayerFrame& frame, Numbers& contexts, float energy, const HashedNumbers& numbers);
  void fill(const LayerFrame& frame, float held);

  const Model::Contents& model_;
  Proposals proposals_;
  Cells cells_;
  Hits hits_;
  Images images_;
  Before before_;
  Drawn colour_, all_;
  Numbers given_, outputs_;
};

}  // namespace calopipe
