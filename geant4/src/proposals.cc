#include "proposals.hh"

#include <algorithm>
#include <cmath>

namespace calopipe {
namespace {

constexpr float kRoom = 1.1f;
constexpr int kBits = 64;                               // of a word
constexpr std::array<int, 4> kSides = {7, 17, 11, 13};  // those of the 25 around a cell that share a side with it

void set(std::vector<std::uint64_t>& bits, int which) {
  bits[size(which / kBits)] |= std::uint64_t{1} << which % kBits;
}

bool has(const std::vector<std::uint64_t>& bits, int which) { return bits[size(which / kBits)] >> which % kBits & 1; }

}  // namespace

Proposals::Proposals(const Model::Contents& model)
    : mesh_(model.mesh),
      of_(model.constants),
      exists_(size(mesh_.layers), Bits(size(mesh_.places / kBits + 1))),
      proposed_(exists_[0].size()),
      beside_(proposed_.size()) {
  parity_ = {Bits(proposed_.size()), Bits(proposed_.size())};
  for (int layer = 0; layer < mesh_.layers; ++layer)
    for (int place = 0; place < mesh_.places; ++place)
      if (mesh_.exists[size(layer * mesh_.places + place)]) set(exists_[size(layer)], place);
  for (int place = 0; place < mesh_.places; ++place) {
    set(parity_[size((place / mesh_.shape[1] + place % mesh_.shape[1]) & 1)], place);
  }
}

void Proposals::propose(const LayerFrame& frame, const HashedNumbers& numbers) {
  std::fill(proposed_.begin(), proposed_.end(), 0);
  std::fill(beside_.begin(), beside_.end(), 0);
  for (std::size_t k = 0; k < 2; ++k) corner_[k] = frame.met[k] + mesh_.start[k];
  const float total = of_.far_total[size(frame.layer)];
  const float busy = frame.plan.cells / of_.layer_cells[size(frame.layer)];
  const auto level = std::count_if(mesh_.levels.begin(), mesh_.levels.end(), [&](float each) { return busy > each; });
  busy_ = mesh_.levels[std::min(static_cast<std::size_t>(level), mesh_.levels.size() - 1)];
  busy_ = std::clamp(busy_, kFewestDraws / std::max(total, 1.0f), kDraws / std::max(total, 1.0f));

  const int* core = of_.core.data() + frame.layer * of_.core_most;
  const float* rate = of_.rate.data() + frame.layer * mesh_.lattice_places();
  // the core is full where there are more places than it has room for
  const bool full = mesh_.lattice_places() > of_.core_most;
  least_ = full ? kRoom * rate[std::max(core[of_.core_most - 1], 0)] : 0.0f;
  // `core` has the likeliest place first, and -1 after the last
  for (int k = 0; k < of_.core_most && core[k] >= 0 && in_core(rate[core[k]]); ++k) mark(core[k]);
  const float often = std::max(busy_ * total / kDraws, 1e-9f);
  const int* table = of_.far_table.data() + frame.layer * of_.entries;
  std::array<float, kDraws> drawn;
  numbers.of_proposals(frame.layer, drawn.data());
  for (const float each : drawn) {
    const float place = each / often;
    if (place < 1) mark(table[std::min(static_cast<int>(place * static_cast<float>(of_.entries)), of_.entries - 1)]);
  }
}

void Proposals::add_beside(const LayerFrame& frame, const Drawn& drawn) {
  for (std::size_t k = 0; k < drawn.place.size(); ++k) {
    if (!(drawn.value[k] > 0)) continue;
    const int* around = frame.around(drawn.place[k]);
    for (const int side : kSides) {
      if (around[side] < mesh_.places) set(beside_, around[side]);
    }
  }
}

void Proposals::cells(const LayerFrame& frame, int colour, std::vector<int>& into) const {
  into.clear();
  const Bits &parity = parity_[size((frame.met[0] + frame.met[1] + colour) & 1)], &exists = exists_[size(frame.layer)];
  for (std::size_t word = 0; word < parity.size(); ++word) {
    const std::uint64_t looked_at = (proposed_[word] | beside_[word]) & parity[word] & exists[word];
    for (std::uint64_t left = looked_at; left != 0; left &= left - 1) {
      into.push_back(static_cast<int>(word) * kBits + __builtin_ctzll(left));
    }
  }
}

float Proposals::chance(const LayerFrame& frame, int place) const {
  if (has(beside_, place)) return 1;
  const int x = place / mesh_.shape[1] - corner_[0], y = place % mesh_.shape[1] - corner_[1];
  const int at = std::clamp(x * mesh_.lattice[1] + y, 0, mesh_.lattice_places() - 1);
  const float rate = of_.rate[size(frame.layer * mesh_.lattice_places() + at)];
  if (in_core(rate)) return 1;
  double missed = 1 - static_cast<double>(std::min(busy_ * rate / kDraws, 0.5f));
  static_assert((kDraws & (kDraws - 1)) == 0);  // repeated squares then give the power kDraws
  for (int draws = 1; draws < kDraws; draws *= 2) missed *= missed;
  return static_cast<float>(1 - missed);
}

void Proposals::mark(int at) {
  const int x = corner_[0] + at / mesh_.lattice[1], y = corner_[1] + at % mesh_.lattice[1];
  if (x >= 0 && y >= 0 && x < mesh_.shape[0] && y < mesh_.shape[1]) set(proposed_, x * mesh_.shape[1] + y);
}

}  // namespace calopipe
