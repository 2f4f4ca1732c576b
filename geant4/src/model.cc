#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "contents.hh"
#include "file.hh"

namespace calopipe {
namespace {

using Shape = std::vector<std::size_t>;

std::size_t size(int count) { return static_cast<std::size_t>(count); }

[[noreturn]] void refuse(const std::string& name) {
  throw std::runtime_error("the array \"" + name + "\" is not what this version of the library reads");
}

Dense dense(int inputs, int outputs, const float* kernel, const float* bias) {
  Dense found{inputs, outputs, padded(outputs), {}, {}};
  found.kernel.assign(size(inputs * found.wide), 0.0f);
  found.bias.assign(size(found.wide), 0.0f);
  for (int row = 0; row < inputs; ++row) {
    for (int k = 0; k < outputs; ++k) found.kernel[size(row * found.wide + k)] = kernel[row * outputs + k];
  }
  if (bias) std::copy(bias, bias + outputs, found.bias.begin());
  return found;
}

Dense dense(const TensorFile& file, const std::string& name, int inputs, int outputs = 0) {
  const auto shape = file.shape(name + ".kernel");
  if (shape.size() != 2 || (outputs == 0 && (shape[1] < 1 || shape[1] > 4096))) refuse(name + ".kernel");
  if (outputs == 0) outputs = static_cast<int>(shape[1]);
  const auto kernel = file.floats(name + ".kernel", {size(inputs), size(outputs)});
  const bool biased = file.has(name + ".bias");
  const auto bias = biased ? file.floats(name + ".bias", {size(outputs)}) : std::vector<float>();
  return dense(inputs, outputs, kernel.data(), biased ? bias.data() : nullptr);
}

std::array<Dense, 3> perceptron(const TensorFile& file, const std::string& name, int inputs, int outputs) {
  Dense first = dense(file, name + ".first", inputs);
  Dense second = dense(file, name + ".second", first.outputs);
  Dense last = dense(file, name + ".last", second.outputs, outputs);
  return {first, second, last};
}

// The mixtures of a network are as many as the numbers of its last layer are, over three.
int mixture_numbers(const TensorFile& file, const std::string& name) {
  const auto shape = file.shape(name);
  if (shape.empty() || shape.back() % 3 != 0 || shape.back() == 0 || shape.back() > 3 * kLane) refuse(name);
  return static_cast<int>(shape.back());
}

Ladder ladder(const TensorFile& file, const std::string& name, int steps, int inputs, int outputs) {
  const auto shape = file.shape(name + ".first");
  if (shape.size() != 3 || shape[2] < 1 || shape[2] > 4096) refuse(name + ".first");
  const int width = static_cast<int>(shape[2]);
  const std::size_t many = size(steps);
  std::array<std::vector<float>, 3> kernels, biases;
  const std::array<const char*, 3> names = {".first", ".second", ".last"};
  const std::array<int, 4> sizes = {inputs, width, width, outputs};
  for (std::size_t k = 0; k < 3; ++k) {
    kernels[k] = file.floats(name + names[k], {many, size(sizes[k]), size(sizes[k + 1])});
    biases[k] = file.floats(name + names[k] + "_bias", {many, 1, size(sizes[k + 1])});
  }
  Ladder found(many);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t k = 0; k < 3; ++k) {
      found[size(step)][k] = dense(sizes[k], sizes[k + 1], kernels[k].data() + step * sizes[k] * sizes[k + 1],
                                   biases[k].data() + step * sizes[k + 1]);
    }
  }
  return found;
}

Chain chain(const TensorFile& file, const std::string& name, int steps, int labels) {
  constexpr int kHats = 6;
  const int inputs = 4 + 2 + 1 + 3 + labels + 1 + kHats, outputs = mixture_numbers(file, name + ".last");
  const auto shape = file.shape(name + ".first");
  if (shape.size() != 2 || shape[1] < 1 || shape[1] > 4096) refuse(name + ".first");
  const int width = static_cast<int>(shape[1]);
  Chain found;
  const auto first = file.floats(name + ".first", {size(inputs), size(width)});
  const auto second = file.floats(name + ".second", {size(width), size(width)});
  const auto second_bias = file.floats(name + ".second_bias", {size(width)});
  const auto last = file.floats(name + ".last", {size(width), size(outputs)});
  found.layers = {dense(inputs, width, first.data(), nullptr), dense(width, width, second.data(), second_bias.data()),
                  dense(width, outputs, last.data(), nullptr)};
  const auto first_bias = file.floats(name + ".first_bias", {size(steps), 1, size(width)});
  const auto last_bias = file.floats(name + ".last_bias", {size(steps), 1, size(outputs)});
  const auto hats = interpolated(std::max(steps - 1, 1), kHats);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> one(size(padded(width))), two(size(padded(outputs))), where(1 + kHats);
    std::copy_n(first_bias.begin() + step * width, width, one.begin());
    std::copy_n(last_bias.begin() + step * outputs, outputs, two.begin());
    where[0] = step == 0;
    if (step > 0) std::copy(hats[size(step - 1)].begin(), hats[size(step - 1)].end(), where.begin() + 1);
    found.biases.push_back({one, two});
    found.where.push_back(where);
  }
  return found;
}

CellDensity cell_density(const TensorFile& file, const std::string& name, int contexts, int neighbours) {
  CellDensity found;
  found.context_in = dense(file, name + ".context_in", contexts);
  found.cell_in = dense(file, name + ".cell_in", neighbours);
  const int width = found.cell_in.outputs;
  if (width > 256) throw std::runtime_error("its networks have more than 256 units, which the library does not take");
  found.context_out = dense(file, name + ".context_out", found.context_in.outputs, width);
  for (int k = 0; file.has(name + ".hidden_" + std::to_string(k) + ".kernel"); ++k) {
    found.hidden.push_back(dense(file, name + ".hidden_" + std::to_string(k), width, width));
  }
  found.occupied = dense(file, name + ".occupied", width, 1);
  found.deposit = dense(file, name + ".deposit", width, mixture_numbers(file, name + ".deposit.kernel"));
  return found;
}

Range range(const Json& ends) { return {ends[0].as_number(), ends[1].as_number()}; }

int whole(const Json& number) {
  const double found = number.as_number();
  if (!(found >= -2147483647.0 && found <= 2147483647.0) || found != std::floor(found)) {
    throw std::runtime_error("its card has a number that is not whole");
  }
  return static_cast<int>(found);
}

void read_layers(const Json& geometry, Model::Contents& into) {
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
  into.mesh.rings = !into.layers[0].r_edges_mm.empty();
  into.mesh.unit = static_cast<float>(pitch / cell);
}

void require_within(const std::vector<std::int32_t>& indices, int low, int high, const char* name) {
  for (const std::int32_t each : indices) {
    if (each < low || each > high) refuse(name);
  }
}

void read_mesh(const TensorFile& file, Mesh& mesh) {
  const std::size_t layers = size(mesh.layers), places = size(mesh.places);
  mesh.x = file.floats("mesh.x", {layers, places});
  mesh.y = file.floats("mesh.y", {layers, places});
  mesh.ring = file.floats("mesh.ring", {layers, places});
  mesh.log_area = file.floats("mesh.log_area", {layers, places});
  mesh.depth = file.floats("mesh.depth", {layers});
  mesh.per_unit = file.floats("mesh.per_unit", {layers, 2});
  mesh.middle = file.floats("mesh.middle", {layers, 2});
  mesh.levels = file.floats("mesh.levels", file.shape("mesh.levels"));
  mesh.exists = file.integers("mesh.exists", {layers, places});
  mesh.kind = file.integers("mesh.kind", {layers});
  mesh.mirror = file.integers("mesh.mirror", {2, layers, places});
  mesh.most = file.integers("mesh.most", {layers, 2});
  const auto start = file.integers("mesh.start", {2}), lattice = file.integers("mesh.lattice", {2});
  const auto shape = file.shape("mesh.around");
  if (shape.empty() || shape[0] < 1 || shape[0] > layers) refuse("mesh.around");
  mesh.kinds = static_cast<int>(shape[0]);
  mesh.around = file.integers("mesh.around", {shape[0], places, 3 * kAround});
  require_within(mesh.kind, 0, mesh.kinds - 1, "mesh.kind");
  require_within(mesh.around, 0, mesh.places, "mesh.around");
  require_within(mesh.mirror, 0, mesh.places - 1, "mesh.mirror");
  require_within(lattice, 1, 20001, "mesh.lattice");
  for (std::size_t k = 0; k < mesh.most.size(); ++k) {
    if (mesh.most[k] < 0 || mesh.most[k] >= mesh.shape[k % 2]) refuse("mesh.most");
  }
  if (mesh.levels.empty()) refuse("mesh.levels");
  mesh.start = {start[0], start[1]};
  mesh.lattice = {lattice[0], lattice[1]};
  const auto parity = [&](int place) { return (place / mesh.shape[1] + place % mesh.shape[1]) % 2; };
  for (int row = 0; row < mesh.kinds * mesh.places; ++row) {
    for (int k = 0; k < kAround; ++k) {
      const int other = mesh.around[size(row * 3 * kAround + k)];
      mesh.other_colour.push_back(other < mesh.places && parity(other) != parity(row % mesh.places));
    }
  }
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
  into.quantiles = get("quantiles", {kEnergies, kQuantiles, totals});
  into.mean_of_phases = get("mean_of_phases", {size(4 * mesh.groups()), kBudgets});
  into.colouring = get("colouring", {totals, totals});
  into.presence = get("presence", {layers});
  into.blur_scale = get("blur_scale", {kScaleTerms + more, kOffsets});
  into.blur_most = get("blur_most", {kOffsets});
  into.expected = get("expected", {kBudgets, layers, 8 + more});
  into.odds = get("odds", {layers, odds[1]});
  into.log_deposit = get("log_deposit", {layers, odds[1]});
  into.layer_cells = get("layer_cells", {layers});
  into.far_total = get("far_total", {layers});
  into.rate = get("rate", {layers, lattice});
  into.far_table = file.integers("constants.far_table", {layers, table[1]});
  into.core = file.integers("constants.core", {layers, core[1]});
  require_within(into.far_table, 0, mesh.lattice_places() - 1, "constants.far_table");
  require_within(into.core, -1, mesh.lattice_places() - 1, "constants.core");
  for (std::size_t odd = 0; odd < 2; ++odd) {
    const std::size_t numbers = 20 + more + layers + 24 + (odd ? 11 : 2);
    const std::string name = odd ? "odd" : "even";
    into.context_mean[odd] = get(name + "_mean", {numbers});
    into.context_scale[odd] = get(name + "_scale", {numbers});
  }
}

void read_networks(const TensorFile& file, Model::Contents& model) {
  const int layers = model.mesh.layers, labels = 4 + model.more();
  model.presence = ladder(file, "totals.presence", layers, layers + labels, 1);
  model.of_layers = chain(file, "totals.of_layers", layers, labels);
  const int others = kOffsets + kBudgets;
  model.others =
      ladder(file, "totals.others", others, others + 7 + labels, mixture_numbers(file, "totals.others.last"));
  const int offsets = 2 * model.mesh.groups() + labels + 6;
  const int even = static_cast<int>(model.constants.context_mean[0].size());
  const int odd = static_cast<int>(model.constants.context_mean[1].size());
  const int known = 2 * kAround + kPlaceNumbers;
  const std::array<const char*, 3> names = {"place", "slope", "share"};
  const std::array<int, 3> inputs = {offsets, offsets + 1, even - 2 + known};
  for (std::size_t k = 0; k < 3; ++k) {
    const std::string name = names[k];
    model.numbers[k] = perceptron(file, name, inputs[k], mixture_numbers(file, name + ".last.kernel"));
  }
  model.counts = {perceptron(file, "even_count", even, kCounts), perceptron(file, "odd_count", odd, kCounts)};
  model.cells = {cell_density(file, "even", even, known), cell_density(file, "odd", odd, known + kAround)};
}

std::unique_ptr<const Model::Contents> read(const std::string& path) {
  const TensorFile file(path);
  const Json identity = Json::parse(file.said("calopipe_export")), card = Json::parse(file.said("calopipe_card"));
  if (identity["kind"].as_string() != "calopipe.export" || identity["schema_version"].as_number() != 1) {
    throw std::runtime_error("the export of another version of calopipe");
  }
  auto found = std::make_unique<Model::Contents>();
  found->fingerprint = identity["model"].as_string();
  const Json& valid = card["valid_range"];
  found->energy_gev = range(valid["energy_gev"]);
  found->theta_rad = range(valid["theta_rad"]);
  if (valid.has("phi_rad")) found->phi_rad = range(valid["phi_rad"]);
  if (valid.has("particle")) {
    for (const Json& each : valid["particle"].as_array()) found->particles.push_back(whole(each));
  }
  read_layers(card["geometry"], *found);
  read_mesh(file, found->mesh);
  read_constants(file, *found, found->constants);
  read_networks(file, *found);
  return found;
}

// As `training.models.showers.allowed` says.
bool inside(double value, Range range) {
  const auto given = static_cast<float>(value), low = static_cast<float>(range.low);
  const auto high = static_cast<float>(range.high), beyond = 1e-3f * (high - low);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return given >= std::nextafter(low - beyond, -kInfinity) && given <= std::nextafter(high + beyond, kInfinity);
}

}  // namespace

std::vector<std::vector<float>> interpolated(int places, int knots) {
  std::vector<std::vector<float>> found(size(places), std::vector<float>(size(knots)));
  const double step = places > 1 ? static_cast<double>(knots - 1) / (places - 1) : 0.0;
  for (int place = 0; place < places; ++place) {
    for (int knot = 0; knot < knots; ++knot) {
      found[size(place)][size(knot)] = static_cast<float>(std::max(1 - std::abs(place * step - knot), 0.0));
    }
  }
  return found;
}

Model::Model(std::unique_ptr<const Contents> contents) : contents_(std::move(contents)) {}
Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::string& file) {
  try {
    return std::shared_ptr<const Model>(new Model(read(file)));
  } catch (const std::exception& error) {
    throw std::runtime_error(file + ": no model of showers (" + error.what() +
                             "); write one by `python -m training export --model DIR --output FILE.safetensors`");
  }
}

const std::string& Model::fingerprint() const { return contents_->fingerprint; }
const std::vector<Layer>& Model::layers() const { return contents_->layers; }
bool Model::in_rings() const { return contents_->mesh.rings; }

std::array<double, 3> Model::position_mm(int x, int y, int layer) const {
  const Mesh& mesh = contents_->mesh;
  const bool known = x >= 0 && y >= 0 && layer >= 0 && x < mesh.shape[0] && y < mesh.shape[1] && layer < mesh.layers;
  const std::size_t at = known ? size(layer * mesh.places + x * mesh.shape[1] + y) : 0;
  if (!known || !mesh.exists[at]) throw std::out_of_range("the calorimeter has no such cell");
  return {mesh.x[at] * contents_->cell_mm, mesh.y[at] * contents_->cell_mm, contents_->layers[size(layer)].middle_mm};
}

Range Model::energy_gev() const { return contents_->energy_gev; }
Range Model::theta_rad() const { return contents_->theta_rad; }
std::optional<Range> Model::phi_rad() const { return contents_->phi_rad; }
const std::vector<int>& Model::particles() const { return contents_->particles; }

bool Model::covers(const Labels& labels) const {
  const Contents& of = *contents_;
  bool kind = of.particles.size() < 2;
  for (const int each : of.particles) kind = kind || each == labels.pdg;
  return kind && inside(labels.energy_gev, of.energy_gev) && inside(labels.theta_rad, of.theta_rad) &&
         (!of.phi_rad || inside(labels.phi_rad, *of.phi_rad));
}

int Model::noise_numbers() const { return contents_->noise_numbers(); }

}  // namespace calopipe
