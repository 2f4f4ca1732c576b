#include <stdexcept>

#include "reading.hh"

namespace calopipe {
namespace {

using Shape = std::vector<std::size_t>;

void require_within(const std::vector<std::int32_t>& indices, int low, int high, const char* name) {
  for (const std::int32_t each : indices) {
    if (each < low || each > high) refuse(name);
  }
}

}  // namespace

[[noreturn]] void refuse(const std::string& name) {
  throw std::runtime_error("the array \"" + name + "\" is not what this version of the library reads");
}

void read_mesh(const TensorFile& file, Mesh& mesh) {
  const std::size_t layers = size(mesh.layers), places = size(mesh.places);
  mesh.depth = file.floats("mesh.depth", {layers});
  mesh.per_unit = file.floats("mesh.per_unit", {layers, 2});
  mesh.middle = file.floats("mesh.middle", {layers, 2});
  mesh.short_side = file.floats("mesh.short_side", {layers});
  mesh.spare = file.floats("mesh.spare", {layers, 2});
  for (const float side : mesh.short_side) {
    if (!(side > 0)) refuse("mesh.short_side");
  }
  for (const float each : mesh.spare) {
    if (!(each >= 0 && each < 10000)) refuse("mesh.spare");
  }
  mesh.levels = file.floats("mesh.levels", file.shape("mesh.levels"));
  mesh.exists = file.integers("mesh.exists", {layers, places});
  mesh.of_parity.assign(2 * layers, 0.0f);
  for (std::size_t k = 0; k < mesh.exists.size(); ++k) {
    const std::size_t layer = k / places, place = k % places, wide = size(mesh.shape[1]);
    mesh.of_parity[2 * layer + ((place / wide + place % wide) & 1)] += mesh.exists[k] != 0;
  }
  mesh.kind = file.integers("mesh.kind", {layers});
  mesh.mirror = file.integers("mesh.mirror", {2, layers, places});
  mesh.most = file.integers("mesh.most", {layers, 2});
  const auto start = file.integers("mesh.start", {2}), lattice = file.integers("mesh.lattice", {2});
  const auto shape = file.shape("mesh.around");
  if (shape.empty() || shape[0] < 1 || shape[0] > layers) refuse("mesh.around");
  mesh.kinds = static_cast<int>(shape[0]);
  mesh.around = file.integers("mesh.around", {shape[0], places, 3 * kAround});
  require_within(mesh.kind, 0, mesh.kinds - 1, "mesh.kind");
  const Numbers x = file.floats("mesh.x", {layers, places}), y = file.floats("mesh.y", {layers, places});
  const Numbers ring = file.floats("mesh.ring", {layers, places}),
                area = file.floats("mesh.log_area", {layers, places});
  mesh.where.resize(shape[0] * places);
  for (std::size_t k = 0; k < x.size(); ++k) {
    mesh.where[size(mesh.kind[k / places]) * places + k % places] = {x[k], y[k], ring[k], area[k]};
  }
  require_within(mesh.around, 0, mesh.places, "mesh.around");
  require_within(mesh.mirror, 0, mesh.places - 1, "mesh.mirror");
  require_within(lattice, 1, 20001, "mesh.lattice");
  for (std::size_t k = 0; k < mesh.most.size(); ++k) {
    if (mesh.most[k] < 0 || mesh.most[k] >= mesh.shape[k % 2]) refuse("mesh.most");
  }
  if (mesh.levels.empty()) refuse("mesh.levels");
  mesh.start = {start[0], start[1]};
  mesh.lattice = {lattice[0], lattice[1]};
}

void read_constants(const TensorFile& file, const Model::Contents& model, Constants& into) {
  const auto get = [&](const std::string& name, const Shape& shape) { return file.floats("constants." + name, shape); };
  const auto scalar = [&](const std::string& name) { return get(name, {})[0]; };
  const Mesh& mesh = model.mesh;
  const std::size_t layers = size(mesh.layers), totals = size(model.totals()), more = size(model.more());
  const std::size_t lattice = size(mesh.lattice_places());
  const auto odds = file.shape("constants.odds"), table = file.shape("constants.far_table");
  const auto core = file.shape("constants.core");
  if (odds.size() != 2 || odds[1] < 2) refuse("constants.odds");
  if (table.size() != 2 || table[1] < 1) refuse("constants.far_table");
  if (core.size() != 2 || core[1] < 1) refuse("constants.core");
  into.knots = static_cast<int>(odds[1]);
  into.entries = static_cast<int>(table[1]);
  into.core_most = static_cast<int>(core[1]);
  into.depth = scalar("depth");
  into.radius_half = scalar("radius_half");
  into.radius_most = scalar("radius_most");
  into.deposit = scalar("deposit");
  into.least = scalar("least");
  into.log_energy = get("log_energy", {2});
  into.cos_theta = get("cos_theta", {2});
  if (model.phi_rad) into.sin_phi = get("sin_phi", {2});
  into.mean = get("mean", {kMeanTerms + more, totals});
  into.scale = get("scale", {kScaleTerms + more, totals});
  into.quantiles = get("quantiles", {kEnergies, kScores, totals});
  into.mean_of_budgets = get("mean_of_budgets", {size(4 * mesh.groups() + kShape) + 1, kLast});
  into.colouring = get("colouring", {totals, totals});
  into.presence = get("presence", {layers});
  into.blur_scale = get("blur_scale", {kScaleTerms + more, kOffsets});
  into.blur_most = get("blur_most", {kOffsets});
  into.expected = get("expected", {kBudgets, layers, 8 + more});
  into.odds = get("odds", {layers, odds[1]});
  into.score = get("score", {layers, odds[1]});
  into.spectra = get("spectra", {layers, kScores});
  into.layer_cells = get("layer_cells", {layers});
  into.far_total = get("far_total", {layers});
  into.rate = get("rate", {layers, lattice});
  into.far_table = file.integers("constants.far_table", {layers, table[1]});
  into.core = file.integers("constants.core", {layers, core[1]});
  require_within(into.far_table, 0, mesh.lattice_places() - 1, "constants.far_table");
  require_within(into.core, -1, mesh.lattice_places() - 1, "constants.core");
  for (std::size_t odd = 0; odd < 2; ++odd) {
    const std::size_t numbers = 24 + more + layers + 29 + (odd ? 11 : 2) + 2;
    const std::string name = odd ? "odd" : "even";
    into.context_mean[odd] = get(name + "_mean", {numbers});
    into.context_scale[odd] = get(name + "_scale", {numbers});
  }
}

}  // namespace calopipe
