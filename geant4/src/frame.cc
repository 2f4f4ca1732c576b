#include "frame.hh"

#include <algorithm>
#include <cmath>

namespace calopipe {

std::vector<std::array<float, 2>> axis_of(const Model::Contents& model, const Asked& asked, const float* offset) {
  std::vector<std::array<float, 2>> found;
  for (const float each : model.mesh.depth) {
    const float depth = each - model.constants.depth;
    found.push_back({offset[0] + (offset[1] + asked.slope_x) * depth, offset[2] + (offset[3] + asked.slope_y) * depth});
  }
  return found;
}

std::array<float, 2> within(const Mesh& mesh, const std::array<float, 2>& axis, int layer) {
  std::array<float, 2> found;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::size_t at = static_cast<std::size_t>(2 * layer) + k;
    const float scaled = axis[k] * mesh.per_unit[at] + mesh.middle[at];
    found[k] = mesh.rings ? std::clamp(axis[k], -2.0f, 2.0f) : scaled - std::nearbyint(scaled);
  }
  return found;
}

LayerFrame::LayerFrame(const Model::Contents& model, const Plan& of_shower, int number)
    : mesh(model.mesh),
      of(model.constants),
      layer(number),
      plan(of_shower.layers[size(number)]),
      slope(of_shower.slope) {
  std::array<int, 2> clipped;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::size_t at = size(2 * layer) + k;
    met[k] = static_cast<int>(std::nearbyint(plan.axis[k] * mesh.per_unit[at] + mesh.middle[at]));
    clipped[k] = std::clamp(met[k], 0, mesh.most[at]);
  }
  met_place = clipped[0] * mesh.shape[1] + clipped[1];
}

Distance LayerFrame::distance(int place) const {
  const Place& at = mesh.at(layer, place);
  const float dx = at.x - plan.axis[0], dy = at.y - plan.axis[1];
  return {dx, dy, at.ring, std::sqrt(dx * dx + dy * dy + at.ring * at.ring)};
}

Distance LayerFrame::seen(int place) const {
  auto [dx, dy, ring, r] = distance(place);
  const float short_side = mesh.short_side[size(layer)];
  dx /= short_side;
  dy /= short_side;
  const float* spare = mesh.spare.data() + 2 * layer;
  const float x = std::max(std::abs(dx) - spare[0], 0.0f), y = std::max(std::abs(dy) - spare[1], 0.0f);
  const float longer = 2 * std::max(spare[0], spare[1]);
  if (longer == 0) return {dx, dy, ring, std::sqrt(x * x + y * y + ring * ring)};
  const float squares = std::ceil(longer - 1e-3f) + 1;
  const float step = 2 / std::max(squares - 1, 1.0f);
  float sum = 0;
  for (float k = 0; k < squares; ++k) {
    const float away[] = {x + k * step * spare[0], y + k * step * spare[1]};
    const float squared = std::max(away[0] * away[0] + away[1] * away[1], 1e-12f);
    sum += (1 + longer) / squares / (squared * std::sqrt(squared));
  }
  return {dx, dy, ring, 1 / std::cbrt(sum)};
}

float LayerFrame::prior(const Numbers& table, float radius) const {
  const float place = std::min(std::log(1.0f + radius / 0.5f) / 0.15f, static_cast<float>(of.knots) - 1.001f);
  const float left = std::floor(place);
  const float* at = table.data() + layer * of.knots + static_cast<int>(left);
  return at[0] + (place - left) * (at[1] - at[0]);
}

void LayerFrame::place_numbers(int place, const Distance& distance, float* out) const {
  const auto [dx, dy, ring, r] = distance;
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
      mesh.at(layer, place).log_area,
  };
  out = std::copy(found.begin(), found.end(), out);
  if (!mesh.rings) return;
  std::fill_n(out, mesh.shape[0] + mesh.rings, 0.0f);
  out[place / mesh.shape[1]] = 1.0f;
  out[mesh.shape[0] + place % mesh.shape[1]] = 1.0f;
}

Sums LayerFrame::sums(const Drawn& drawn) const {
  Sums found{};
  const float half = of.radius_half * of.radius_half, most = of.radius_most * of.radius_most;
  const auto [along_x, along_y] = mesh.precision(size(layer));
  for (std::size_t k = 0; k < drawn.place.size(); ++k) {
    const float value = drawn.value[k];
    if (!(value > 0)) continue;
    const auto [dx, dy, ring, radius] = distance(drawn.place[k]);
    const float square = dx * dx + dy * dy + ring * ring;
    found[kEnergy] += value;
    found[kCells] += 1;
    found[kHits] += value > kHit;
    found[kSquares] += value * value;
    found[kBeyondHalf] += square > half ? value : 0.0f;
    found[kBeyondMost] += square > most ? value : 0.0f;
    const float near = value / (1 + dx * dx * along_x + dy * dy * along_y);
    const float near_x = near * along_x * dx, near_y = near * along_y * dy;
    found[kX] += value * dx;
    found[kY] += value * dy;
    found[kXX] += value * (dx * dx + ring * ring / 2);
    found[kYY] += value * (dy * dy + ring * ring / 2);
    found[kXDepth] += value * dx * plan.depth;
    found[kYDepth] += value * dy * plan.depth;
    found[kNearX] += near_x;
    found[kNearY] += near_y;
    found[kNearXDepth] += near_x * plan.depth;
    found[kNearYDepth] += near_y * plan.depth;
  }
  return found;
}

}  // namespace calopipe
