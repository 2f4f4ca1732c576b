#include <algorithm>
#include <stdexcept>

#include "reading.hh"

namespace calopipe {
namespace {

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

// How many outputs the last layer of a network has: one for each of `cases`, and three for each component of a mixture.
int mixture_numbers(const TensorFile& file, const std::string& name, std::size_t cases = 0) {
  const auto shape = file.shape(name);
  const std::size_t numbers = shape.empty() || shape.back() < cases ? 0 : shape.back() - cases;
  if (numbers % 3 != 0 || numbers == 0 || numbers > 3 * kLane) refuse(name);
  return static_cast<int>(cases + numbers);
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
  const int inputs = 4 + 2 + 3 + kLayersBefore + kToCome + labels + kHats,
            outputs = mixture_numbers(file, name + ".last");
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
  found.where = interpolated(steps, kHats);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> one(size(padded(width))), two(size(padded(outputs)));
    std::copy_n(first_bias.begin() + step * width, width, one.begin());
    std::copy_n(last_bias.begin() + step * outputs, outputs, two.begin());
    found.biases.push_back({one, two});
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
  const std::string occupied = name + ".occupied";
  found.occupied = file.floats(occupied + ".kernel", {size(width), 1});
  found.occupied.resize(size(padded(width)));
  found.occupied_bias = file.floats(occupied + ".bias", {1})[0];
  found.deposit = dense(file, name + ".deposit", width, mixture_numbers(file, name + ".deposit.kernel"));
  return found;
}

}  // namespace

void read_networks(const TensorFile& file, Model::Contents& model) {
  const int layers = model.mesh.layers, labels = 4 + model.more();
  model.presence = ladder(file, "totals.presence", layers, layers + labels, 1);
  model.of_layers = chain(file, "totals.of_layers", std::max(layers - 1, 1), labels);
  const int others = 1 + kOffsets + kLast;
  model.others = ladder(file, "totals.others", others, others + kHats + kShape + labels,
                        mixture_numbers(file, "totals.others.last"));
  const int offsets = 2 * model.mesh.groups() + labels + 6;
  const int even = static_cast<int>(model.constants.context_mean[0].size());
  const int odd = static_cast<int>(model.constants.context_mean[1].size());
  const int known = 2 * kAround + model.mesh.of_place(), count = 2, share = 2;  // numbers that contexts end in
  const auto number = [&](const std::string& name, int inputs, std::size_t cases = 0) {
    return perceptron(file, name, inputs, mixture_numbers(file, name + ".last.kernel", cases));
  };
  model.numbers = {number("place", offsets), number("slope", offsets + 1),
                   number("share", even - share - count + model.mesh.of_met(), kCases)};
  model.counts = {number("even_count", even - count), number("odd_count", odd - count)};
  model.cells = {cell_density(file, "even", even, known), cell_density(file, "odd", odd, known + kAround)};
}

}  // namespace calopipe
