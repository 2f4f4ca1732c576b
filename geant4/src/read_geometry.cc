#include <cmath>
#include <stdexcept>

#include "reading.hh"

namespace calopipe {

int whole(const Json& number) {
  const double found = number.as_number();
  if (!(found >= -2147483647.0 && found <= 2147483647.0) || found != std::floor(found)) {
    throw std::runtime_error("its card has a number that is not whole");
  }
  return static_cast<int>(found);
}

void read_geometry(const Json& geometry, Model::Contents& into) {
  const double cell = geometry["cell_mm"].as_number(), pitch = geometry["layer_pitch_mm"].as_number();
  into.cell_mm = cell;
  into.layer_pitch_mm = pitch;
  const Json& shape = geometry["shape"];
  const int n = whole(shape[0]), m = whole(shape[1]), layers = whole(shape[2]);
  if (n < 1 || m < 1 || layers < 1 || n > 10000 || m > 10000 || layers > 10000) {
    throw std::runtime_error("its card has a calorimeter of no shape");
  }
  if (!geometry.has("layers")) into.layers.assign(size(layers), {pitch, 0, {n, m}, {cell, cell}, {}});
  for (const Json& each : geometry.has("layers") ? geometry["layers"].as_array() : std::vector<Json>()) {
    Layer one{each["pitch_mm"].as_number(), 0, {whole(each["cells"][0]), whole(each["cells"][1])}, {0, 0}, {}};
    if (each.has("size_mm")) one.size_mm = {each["size_mm"][0].as_number(), each["size_mm"][1].as_number()};
    if (each.has("r_edges_mm")) {
      for (const Json& edge : each["r_edges_mm"].as_array()) one.r_edges_mm.push_back(edge.as_number());
    }
    for (int count = each.has("count") ? whole(each["count"]) : 1; count > 0; --count) into.layers.push_back(one);
  }
  if (into.layers.size() != size(layers)) throw std::runtime_error("its card lists another number of layers");
  double depth = 0;
  for (Layer& each : into.layers) {
    each.middle_mm = depth + each.thickness_mm / 2;
    depth += each.thickness_mm;
  }
  into.mesh.shape = {n, m};
  into.mesh.places = n * m;
  into.mesh.layers = layers;
  into.mesh.rings = into.layers[0].r_edges_mm.empty() ? 0 : m;
  into.mesh.unit = static_cast<float>(pitch / cell);
}

}  // namespace calopipe
