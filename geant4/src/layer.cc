#include "layer.hh"

#include <algorithm>
#include <cmath>

namespace calopipe {
namespace {

constexpr float kShareReach = 6.0f, kAll = 0.1f, kTiny = 1e-3f, kHit = 3e-4f / 0.02f;
constexpr float kCoreRate = 1.2f, kRoom = 1.1f;
constexpr std::array<int, 4> kSides = {7, 17, 11, 13};  // those of the 25 around a cell that share a side with it
constexpr Budgets kFloors = {3.0f, 2.0f, kHit, kHit, 10 * kHit, 10 * kHit};

std::size_t size(int count) { return static_cast<std::size_t>(count); }

float clip(float value, float most) { return std::clamp(value, -most, most); }

void of_layer(const Sums& sums, std::size_t count, Numbers& into) {
  const float energy = std::max(sums[kEnergy], kTiny);
  const std::array<float, 8> found = {
      std::log(1.0f + sums[kCells]),
      std::log(sums[kBeyondMost] / energy + 3e-3f),
      std::log((sums[kXX] + sums[kYY]) / energy + 0.05f),
      std::log(sums[kBeyondHalf] / energy + 0.02f),
      std::sqrt(sums[kSquares]) / energy,
      clip(sums[kX] / energy, 2),
      clip(sums[kY] / energy, 2),
      sums[kHits] / (sums[kCells] + 1.0f),
  };
  into.insert(into.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

LayerDrawing::LayerDrawing(const Model::Contents& model) : model_(model), mesh_(model.mesh), of_(model.constants) {
  const std::size_t places = size(mesh_.places + 1);
  images_ = {Numbers(places), Numbers(places)};
  own_.resize(places);
  marks_.resize(places);
}

void LayerDrawing::begin(const std::array<int, 2>& keys) {
  keys_ = keys;
  for (Numbers& each : images_) std::fill(each.begin(), each.end(), 0.0f);
  before_ = one_ = two_ = Sums{};
}

const Drawn& LayerDrawing::draw(int layer, const Plan& plan) {
  layer_ = layer;
  plan_ = &plan;
  here_ = &plan.layers[size(layer)];
  std::array<int, 2> clipped;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::size_t at = size(2 * layer) + k;
    met_[k] = static_cast<int>(std::nearbyint(here_->axis[k] * mesh_.per_unit[at] + mesh_.middle[at]));
    corner_[k] = met_[k] + mesh_.start[k];
    clipped[k] = std::clamp(met_[k], 0, mesh_.most[at]);
  }
  met_place_ = clipped[0] * mesh_.shape[1] + clipped[1];
  std::fill(marks_.begin(), marks_.end(), std::uint8_t{0});
  std::fill(own_.begin(), own_.end(), 0.0f);
  all_.place.clear();
  all_.value.clear();
  propose();

  Numbers contexts = context(nullptr);
  const float logit = drawn_share(contexts);
  const float share = std::abs(logit) < kShareReach - kAll ? sigmoid(logit) : static_cast<float>(logit > 0);
  contexts.push_back(clip(logit, kShareReach));
  contexts.push_back(std::log(std::max(sigmoid(logit) * here_->energy, kTiny)));
  deposits(0, contexts, share * here_->energy);
  all_ = colour_;
  const Sums even = summed();
  put(own_);
  mark_beside();
  deposits(1, context(&even), std::max(here_->energy - even[kEnergy], 0.0f));
  all_.place.insert(all_.place.end(), colour_.place.begin(), colour_.place.end());
  all_.value.insert(all_.value.end(), colour_.value.begin(), colour_.value.end());
  fill();

  two_ = one_;
  one_ = summed();
  for (std::size_t k = 0; k < kSums; ++k) before_[k] += one_[k];
  std::swap(images_[0], images_[1]);
  std::fill(images_[0].begin(), images_[0].end(), 0.0f);
  put(images_[0]);
  return all_;
}

void LayerDrawing::mark(int at) {
  const int x = corner_[0] + at / mesh_.lattice[1], y = corner_[1] + at % mesh_.lattice[1];
  if (x < 0 || y < 0 || x >= mesh_.shape[0] || y >= mesh_.shape[1]) return;
  const int place = x * mesh_.shape[1] + y;
  if (mesh_.exists[size(layer_ * mesh_.places + place)]) marks_[size(place)] |= kProposed;
}

void LayerDrawing::propose() {
  const float total = of_.far_total[size(layer_)];
  const auto level =
      std::count_if(mesh_.levels.begin(), mesh_.levels.end(), [&](float each) { return here_->busy > each; });
  busy_ = mesh_.levels[std::min(static_cast<std::size_t>(level), mesh_.levels.size() - 1)];
  busy_ = std::min(busy_, kDraws / std::max(total, 1.0f));

  const int* core = of_.core.data() + layer_ * of_.core_most;
  const float* rate = of_.rate.data() + layer_ * mesh_.lattice_places();
  for (int k = 0; k < of_.core_most; ++k) {
    if (core[k] >= 0 && in_core(rate[core[k]])) mark(core[k]);
  }
  const float often = std::max(busy_ * total / kDraws, 1e-9f);
  const int* table = of_.far_table.data() + layer_ * of_.entries;
  const int taken = 2 * mesh_.layers * (mesh_.places + 2) * kBlock;
  std::array<float, kDraws> drawn;
  hashed_uniform(keys_.data(), static_cast<unsigned>(layer_ + taken / kDraws + 1), kDraws, drawn.data());
  for (const float each : drawn) {
    const float place = each / often;
    if (place < 1) mark(table[std::min(static_cast<int>(place * static_cast<float>(of_.entries)), of_.entries - 1)]);
  }
}

bool LayerDrawing::in_core(float rate) const {
  float least = 0;
  if (mesh_.lattice_places() > of_.core_most) {
    const int last = of_.core[size((layer_ + 1) * of_.core_most - 1)];
    least = kRoom * of_.rate[size(layer_ * mesh_.lattice_places() + std::max(last, 0))];
  }
  return rate * std::max(busy_, 1.0f) > kCoreRate && rate > least;
}

float LayerDrawing::chance_of_proposal(int place) const {
  if (marks_[size(place)] & kBeside) return 1;
  const int x = place / mesh_.shape[1] - corner_[0], y = place % mesh_.shape[1] - corner_[1];
  const int at = std::clamp(x * mesh_.lattice[1] + y, 0, mesh_.lattice_places() - 1);
  const float rate = of_.rate[size(layer_ * mesh_.lattice_places() + at)];
  if (in_core(rate)) return 1;
  const double missed = kDraws * std::log(1 - static_cast<double>(std::min(busy_ * rate / kDraws, 0.5f)));
  return static_cast<float>(1 - std::exp(missed));
}

Numbers LayerDrawing::context(const Sums* even) const {
  Numbers found = here_->promised;
  const float energy = std::max(before_[kEnergy], kTiny);
  of_layer(one_, 8, found);
  of_layer(two_, 3, found);
  found.push_back(std::log(before_[kBeyondMost] / energy + 3e-3f));
  found.push_back(std::log((before_[kXX] + before_[kYY]) / energy + 0.05f));
  found.push_back(before_[kCells] / plan_->budgets[0]);
  Sums spent = before_;
  if (even) {
    for (std::size_t k = 0; k < kSums; ++k) spent[k] += (*even)[k];
    const float mine = std::max(here_->energy, kTiny), left = 1 - (*even)[kEnergy] / mine;
    found.push_back(std::max(left, -0.3f));
    found.push_back(std::log(std::max(left, kTiny)));
    found.push_back(std::log(std::max(left * mine, kTiny)));
    of_layer(*even, 8, found);
  }
  for (std::size_t k = 0; k < kBudgets; ++k) {
    const float remaining = std::max(plan_->budgets[k] - spent[kBudgetSums[k]], 0.0f) + kFloors[k];
    found.push_back(clip(std::log(remaining / (here_->expected[k] + kFloors[k])), 2));
  }
  const float rest = std::max(here_->rest_energy - (spent[kEnergy] - before_[kEnergy]), kTiny);
  for (const auto& [moment, deep] : {std::pair(kX, kXDepth), std::pair(kY, kYDepth)}) {
    const float at = -spent[moment] / rest;
    const float slope = (-spent[deep] / rest - at * here_->rest_mean) / (here_->rest_variance + 0.5f);
    found.push_back(clip(at, 1));
    found.push_back(clip(at + slope * (here_->depth - here_->rest_mean), 2));
  }
  return found;
}

void LayerDrawing::normalise(const Numbers& contexts, int odd, std::size_t count) {
  given_.resize(count);
  const Numbers &mean = of_.context_mean[size(odd)], &scale = of_.context_scale[size(odd)];
  for (std::size_t k = 0; k < count; ++k) given_[k] = clip((contexts[k] - mean[k]) / scale[k], 6);
}

float LayerDrawing::drawn_share(const Numbers& contexts) {
  normalise(contexts, 0, contexts.size());
  const std::size_t begin = given_.size();
  given_.resize(begin + 2 * kAround + kPlaceNumbers);
  of_place(images_[0], met_place_, 1, given_.data() + begin, 1);
  of_place(images_[1], met_place_, 2, given_.data() + begin + kAround, 1);
  place_numbers(met_place_, distance(met_place_), given_.data() + begin + 2 * kAround, 1);
  const auto& net = model_.numbers[2];
  perceptron(net, given_.data(), outputs_);
  std::array<float, kBlock> numbers;
  uniform(static_cast<unsigned>(2 * mesh_.layers * mesh_.places + 4 * layer_ + 2), numbers.data());
  return draw_mixture(outputs_.data(), net[2].outputs / 3, numbers[0], box_muller(numbers[1], numbers[2]));
}

void LayerDrawing::deposits(int colour, const Numbers& contexts, float energy) {
  const CellDensity& density = model_.cells[size(colour)];
  cells_.clear();
  const int met = met_[0] + met_[1];
  for (int x = 0, place = 0; x < mesh_.shape[0]; ++x) {
    for (int y = 0; y < mesh_.shape[1]; ++y, ++place) {
      if (marks_[size(place)] && ((x + y + met) & 1) == colour) cells_.push_back(place);
    }
  }
  normalise(contexts, colour, contexts.size());
  scratch_.resize(size(density.context_in.wide));
  shared_.resize(size(density.context_out.wide));
  affine(density.context_in, given_.data(), scratch_.data());
  silu(scratch_.data(), density.context_in.wide);
  affine(density.context_out, scratch_.data(), shared_.data());
  evaluate(colour);
  deposit(colour, kept(colour, energy), energy);
}

// Features and chances of the cells.
void LayerDrawing::evaluate(int colour) {
  const CellDensity& density = model_.cells[size(colour)];
  const std::size_t wide = shared_.size(), blocks = (cells_.size() + kRows - 1) / kRows;
  const int neighbours = density.cell_in.inputs - kPlaceNumbers;
  hidden_.resize(blocks * kRows * wide);
  where_.resize(cells_.size());
  chance_.resize(cells_.size());
  values_.resize(size(density.cell_in.inputs * kRows));
  which_.resize(size(density.cell_in.inputs));
  const std::array<const Numbers*, 3> images = {&images_[0], &images_[1], &own_};
  const std::array<int, 3> parts = {1, 2, 0};
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t first = block * kRows, rows = std::min<std::size_t>(kRows, cells_.size() - first);
    std::array<const int*, kRows> around;
    std::array<const float*, kRows> other;
    for (std::size_t r = 0; r < kRows; ++r) {
      const int place = cells_[first + std::min(r, rows - 1)];
      const int row = mesh_.kind[size(layer_)] * mesh_.places + place;
      around[r] = mesh_.around.data() + row * 3 * kAround;
      other[r] = mesh_.other_colour.data() + row * kAround;
    }
    int count = 0;
    for (int k = 0; k < neighbours; ++k) {
      const std::size_t part = size(k / kAround);
      const int at = parts[part] * kAround + k % kAround;
      const float* image = images[part]->data();
      float* into = values_.data() + count * kRows;
      float any = 0;
      for (std::size_t r = 0; r < kRows; ++r) {
        into[r] = image[around[r][at]] * (part == 2 ? other[r][k % kAround] : 1.0f);
        any += into[r];
      }
      if (any != 0) which_[size(count++)] = k;
    }
    for (int k = 0; k < kPlaceNumbers; ++k) which_[size(count + k)] = neighbours + k;
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t cell = first + std::min(r, rows - 1);
      where_[cell] = distance(cells_[cell]);
      place_numbers(cells_[cell], where_[cell], values_.data() + count * kRows + r, kRows);
      std::copy(shared_.begin(), shared_.end(), hidden_.begin() + static_cast<std::ptrdiff_t>((first + r) * wide));
    }
    features(density.cell_in, density.hidden, which_.data(), values_.data(), count + kPlaceNumbers,
             hidden_.data() + first * wide);
  }
  const Dense& occupied = density.occupied;
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    const float* hidden = hidden_.data() + cell * wide;
    float odds = occupied.bias[0];
    for (int k = 0; k < occupied.inputs; ++k) odds += hidden[k] * occupied.kernel[size(k * occupied.wide)];
    odds += prior(of_.odds, where_[cell][3]);
    chance_[cell] = std::min(sigmoid(odds) / chance_of_proposal(cells_[cell]), 1.0f);
  }
}

// Which of so many independent draws of the hits is kept, so that their number is as likely as the density says.
int LayerDrawing::kept(int colour, float energy) {
  std::array<int, kBlock> hits{};
  drawn_numbers_.resize(cells_.size() * kBlock);
  double none = 0, one = 0, two = 0, three = 0;
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    float* drawn = drawn_numbers_.data() + cell * kBlock;
    uniform(2u * static_cast<unsigned>(layer_ * mesh_.places + cells_[cell]), drawn);
    for (std::size_t k = 0; k < kBlock; ++k) hits[k] += drawn[k] < chance_[cell];
    const double chance = std::min(chance_[cell], 0.999f), odds = chance / (1 - chance);
    none += std::log(1 - chance);
    one += odds;
    two += odds * odds;
    three += odds * odds * odds;
  }
  const std::array<double, 4> symmetric = {1, one, (one * one - two) / 2,
                                           (one * one * one - 3 * one * two + 2 * three) / 6};
  std::array<double, kCounts> independent;
  double more = 1;
  for (std::size_t k = 0; k < 4; ++k) {
    independent[k] = std::exp(none) * std::max(symmetric[k], 0.0);
    more -= independent[k];
  }
  independent[4] = more;
  perceptron(model_.counts[size(colour)], given_.data(), outputs_);
  log_softmax(outputs_.data(), kCounts);
  if (energy > 0) outputs_[0] -= 1e3f;  // what has energy has a hit
  std::array<float, kBlock> choice;
  uniform(static_cast<unsigned>(2 * mesh_.layers * mesh_.places + 4 * layer_ + colour), choice.data());
  int best = 0;
  float highest = 0;
  for (std::size_t k = 0; k < kBlock; ++k) {
    const std::size_t number = size(std::min(hits[k], kCounts - 1));
    const auto log_chance = static_cast<float>(std::log(std::max(independent[number], 1e-9)));
    const float score = outputs_[number] - log_chance - std::log(-std::log(choice[k] + 0x1p-26f));
    if (k == 0 || score > highest) {
      best = static_cast<int>(k);
      highest = score;
    }
  }
  return best;
}

// The deposits of the cells that are hit in the draw that is kept. They sum to the `energy`.
void LayerDrawing::deposit(int colour, int kept, float energy) {
  constexpr int kNewtonSteps = 4;
  constexpr float kLeastFree = 0.1f;
  const Dense& layer = model_.cells[size(colour)].deposit;
  const std::size_t wide = shared_.size(), components = size(layer.outputs / 3);
  colour_.place.clear();
  colour_.value.clear();
  free_.clear();
  outputs_.resize(size(layer.wide));
  for (std::size_t cell = 0; cell < cells_.size(); ++cell) {
    if (!(drawn_numbers_[cell * kBlock + size(kept)] < chance_[cell])) continue;
    affine(layer, hidden_.data() + cell * wide, outputs_.data());
    const float before = prior(of_.log_deposit, where_[cell][3]);
    log_softmax(outputs_.data(), layer.outputs / 3);
    float mean = 0;
    for (std::size_t k = 0; k < components; ++k) {
      float& middle = outputs_[components + k];
      middle += before;
      const float width = std::clamp(outputs_[2 * components + k], -4.0f, 2.0f);
      mean += std::exp(outputs_[k] + middle + 0.5f * std::exp(2 * width));
    }
    std::array<float, kBlock> numbers;
    uniform(2u * static_cast<unsigned>(layer_ * mesh_.places + cells_[cell]) + 1, numbers.data());
    const float log_value =
        draw_mixture(outputs_.data(), static_cast<int>(components), numbers[0], box_muller(numbers[1], numbers[2]));
    colour_.place.push_back(cells_[cell]);
    colour_.value.push_back(std::max(std::exp(log_value), of_.least));
    free_.push_back(std::clamp(mean / colour_.value.back(), kLeastFree, 1.0f));
  }
  for (int step = 0; step < kNewtonSteps; ++step) {
    float got = 0, give = 0;
    for (std::size_t k = 0; k < free_.size(); ++k) {
      got += colour_.value[k];
      give += colour_.value[k] * free_[k];
    }
    if (give == 0) break;
    const float by = clip(std::log((energy + of_.least) / (got + of_.least)) * (got / give), 3);
    for (std::size_t k = 0; k < free_.size(); ++k) colour_.value[k] *= std::exp(free_[k] * by);
  }
  std::swap(all_, colour_);
  scale(energy);
  std::swap(all_, colour_);
}

// The deposits scaled to sum to `energy`, and none of less than the least.
void LayerDrawing::scale(float energy) {
  float got = 0;
  for (const float each : all_.value) got += each;
  const float by = got != 0 ? energy / got : 0.0f;
  for (float& each : all_.value) {
    each *= by;
    each = each > 0 ? std::max(each, of_.least) : 0.0f;
  }
}

// The deposits of both colours scaled to the layer's energy, which is on the axis where no cell was hit.
void LayerDrawing::fill() {
  scale(here_->energy);
  float got = 0;
  for (const float each : all_.value) got += each;
  if (got > 0) return;
  all_.place.assign(1, met_place_);
  all_.value.assign(1, here_->energy);
}

Sums LayerDrawing::summed() const {
  Sums found{};
  const float half = of_.radius_half * of_.radius_half, most = of_.radius_most * of_.radius_most;
  for (std::size_t k = 0; k < all_.place.size(); ++k) {
    const float value = all_.value[k];
    if (!(value > 0)) continue;
    const auto [dx, dy, ring, radius] = distance(all_.place[k]);
    const float square = dx * dx + dy * dy + ring * ring;
    found[kEnergy] += value;
    found[kCells] += 1;
    found[kHits] += value > kHit;
    found[kSquares] += value * value;
    found[kBeyondHalf] += square > half ? value : 0.0f;
    found[kBeyondMost] += square > most ? value : 0.0f;
    found[kX] += value * dx;
    found[kY] += value * dy;
    found[kXX] += value * (dx * dx + ring * ring / 2);
    found[kYY] += value * (dy * dy + ring * ring / 2);
    found[kXDepth] += value * dx * here_->depth;
    found[kYDepth] += value * dy * here_->depth;
  }
  return found;
}

// Marks the cells that share a side with one that holds energy.
void LayerDrawing::mark_beside() {
  const int kind = mesh_.kind[size(layer_)];
  for (std::size_t k = 0; k < all_.place.size(); ++k) {
    if (!(all_.value[k] > 0)) continue;
    const int* around = mesh_.around.data() + (kind * mesh_.places + all_.place[k]) * 3 * kAround;
    for (const int side : kSides) {
      if (around[side] < mesh_.places) marks_[size(around[side])] |= kBeside;
    }
  }
}

// Adds the deposits to `image`, as the networks see them.
void LayerDrawing::put(Numbers& image) {
  for (std::size_t k = 0; k < all_.place.size(); ++k) {
    image[size(all_.place[k])] += std::log(1.0f + all_.value[k] / of_.deposit) / 4.0f;
  }
}

LayerDrawing::Distance LayerDrawing::distance(int place) const {
  const std::size_t at = size(layer_ * mesh_.places + place);
  const float dx = mesh_.x[at] - here_->axis[0], dy = mesh_.y[at] - here_->axis[1], ring = mesh_.ring[at];
  return {dx, dy, ring, std::sqrt(dx * dx + dy * dy + ring * ring)};
}

float LayerDrawing::prior(const Numbers& table, float radius) const {
  const float place = std::min(std::log(1.0f + radius / 0.5f) / 0.15f, static_cast<float>(of_.knots) - 1.001f);
  const float left = std::floor(place);
  const float* at = table.data() + layer_ * of_.knots + static_cast<int>(left);
  return at[0] + (place - left) * (at[1] - at[0]);
}

int LayerDrawing::of_place(const Numbers& image, int place, int part, float* out, int stride) const {
  const int row = mesh_.kind[size(layer_)] * mesh_.places + place;
  const int* around = mesh_.around.data() + row * 3 * kAround + part * kAround;
  for (int k = 0; k < kAround; ++k) out[k * stride] = image[size(around[k])];
  return kAround;
}

void LayerDrawing::place_numbers(int place, const Distance& distance, float* out, int stride) const {
  const auto [dx, dy, ring, r] = distance;
  const float slope = plan_->slope, log_area = mesh_.log_area[size(layer_ * mesh_.places + place)];
  const auto far = [](float length) { return std::min(length / 8.0f, 8.0f); };
  const std::array<float, kPlaceNumbers> found = {
      clip(dx, 2),
      clip(dy, 2),
      clip(dx, 0.8f),
      clip(dy, 0.8f),
      std::exp(-1.5f * r),
      std::exp(-r / 1.5f),
      std::exp(-r / 5.0f),
      std::log(r + 0.3f),
      far(r),
      std::min(r, 3.0f) - 1.5f,
      (dx * dx - dy * dy) / (r * r + 1.0f),
      far(std::abs(dx)),
      far(std::abs(dy)),
      slope * clip(dy, 1),
      slope * clip(dy, 6),
      log_area,
  };
  for (int k = 0; k < kPlaceNumbers; ++k) out[k * stride] = found[size(k)];
}

}  // namespace calopipe
