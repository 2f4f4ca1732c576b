// The arithmetic that takes the time: small networks, computed in the widest vectors that the processor has.
#pragma once

#include <vector>

namespace calopipe {

using Numbers = std::vector<float>;

constexpr int kLane = 16;  // the outputs of a network are padded with zeros to a multiple of kLane
constexpr int kRows = 6;   // cells that are evaluated at a time

inline int padded(int count) { return (count + kLane - 1) / kLane * kLane; }

// outputs = inputs x kernel + bias; `kernel` is inputs x wide, where wide = padded(outputs).
struct Dense {
  int inputs = 0, outputs = 0, wide = 0;
  Numbers kernel, bias;
};

// Computes `out` (wide) from `in` (inputs). If a `bias` is given, it replaces that of the layer.
void affine(const Dense& layer, const float* in, float* out, const float* bias = nullptr);
// The same for kRows rows, `in` (kRows, inputs) and `out` (kRows, wide).
void affine_of_rows(const Dense& layer, const float* in, float* out);
// x / (1 + exp(-x)) for each of `count` numbers, a multiple of kLane: `silu` in place, `add_silu` added to `into`.
void silu(float* values, int count);
void add_silu(float* into, const float* values, int count);

// The scalar product of two vectors of `count` numbers, a multiple of kLane.
float dot(const float* one, const float* two, int count);

// Computes the features `hidden` (kRows, wide) of kRows cells from what is known of them, `values` (kRows, inputs).
// Only the `count` inputs that `which` names are read; the others are 0. `begin` (wide) is the bias of the first layer.
void features(const Dense& first, const std::vector<Dense>& others, const float* begin, const int* which, int count,
              const float* values, float* hidden);

// Writes `count` numbers in [0, 1) to `out`, a pure function of the two `keys` and the `counter`. They are those of
// `hashed_uniform` in training/models/randomness.py with the counters from `counter` * `count` on.
void hashed_uniform(const int* keys, unsigned counter, int count, float* out);

}  // namespace calopipe
