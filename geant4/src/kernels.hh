// The arithmetic that takes the time: small networks, in the widest vectors that the processor has.
#pragma once

#include <vector>

namespace calopipe {

using Numbers = std::vector<float>;

constexpr int kLane = 16;  // to whose multiple the outputs of a network are padded, by zeros
constexpr int kRows = 6;   // cells that are evaluated at a time

inline int padded(int count) { return (count + kLane - 1) / kLane * kLane; }

// outputs = inputs x kernel + bias; `kernel` is inputs x wide, where wide = padded(outputs).
struct Dense {
  int inputs = 0, outputs = 0, wide = 0;
  Numbers kernel, bias;
};

// `out` (wide) of `in` (inputs), with another bias than the layer's own if one is given.
void affine(const Dense& layer, const float* in, float* out, const float* bias = nullptr);
// The same of kRows rows, `in` (kRows, inputs) and `out` (kRows, wide).
void affine_of_rows(const Dense& layer, const float* in, float* out);
// x / (1 + exp(-x)) of each of `count` numbers, a multiple of kLane: in place, or added to `into`.
void silu(float* values, int count);
void add_silu(float* into, const float* values, int count);

// The sum of the products of `count` numbers, a multiple of kLane.
float dot(const float* one, const float* two, int count);

// The features `hidden` (kRows, wide) of so many cells; `begin` (wide) stands for the bias of the first layer.
// Of what is known of them, `values` (kRows, inputs), it takes those `count` numbers that `which` names.
void features(const Dense& first, const std::vector<Dense>& others, const float* begin, const int* which, int count,
              const float* values, float* hidden);

// Numbers in [0, 1): `count` of them for each counter, a pure function of the two keys and the counter. They are those
// of `hashed_uniform` in training/models/randomness.py.
void hashed_uniform(const int* keys, unsigned counter, int count, float* out);

}  // namespace calopipe
