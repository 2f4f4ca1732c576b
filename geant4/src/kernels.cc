#include "kernels.hh"

#include <cstdint>

// On x86 with GCC or Clang, each function is compiled for three kinds of processors. The program takes the best version
// when it runs. All helper functions are inlined, so that none is compiled for another processor than its caller.
#define CALOPIPE_INLINE inline __attribute__((always_inline))

namespace calopipe {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));
typedef std::int32_t Int4 __attribute__((vector_size(16)));
typedef std::int32_t Int8 __attribute__((vector_size(32)));
typedef std::int32_t Int16 __attribute__((vector_size(64)));

template <int size>
struct Lanes;
template <>
struct Lanes<4> {
  using Float = Float4;
  using Int = Int4;
};
template <>
struct Lanes<8> {
  using Float = Float8;
  using Int = Int8;
};
template <>
struct Lanes<16> {
  using Float = Float16;
  using Int = Int16;
};

template <class Vector>
CALOPIPE_INLINE void load(Vector& into, const float* from) {
  __builtin_memcpy(&into, from, sizeof(Vector));
}

template <class Vector>
CALOPIPE_INLINE void store(float* into, const Vector& from) {
  __builtin_memcpy(into, &from, sizeof(Vector));
}

// Writes exp(-x) to `found`: 2^n times exp(r), where the Taylor series gives exp(r), and |r| is at most ln(2) / 2.
template <int lanes>
CALOPIPE_INLINE void exp_of_minus(const typename Lanes<lanes>::Float& x, typename Lanes<lanes>::Float& found) {
  using Vector = typename Lanes<lanes>::Float;
  using Int = typename Lanes<lanes>::Int;
  constexpr float kMost = 87.0f, kRounder = 12582912.0f;  // 1.5 x 2^23: adding this rounds
  Vector y = -x;
  y = y > kMost ? Vector{} + kMost : y;
  y = y < -kMost ? Vector{} - kMost : y;
  const Vector rounded = y * 1.44269504f + kRounder;
  const Vector n = rounded - kRounder;
  const Vector r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  found = (Vector)((Int)series + ((Int)rounded << 23));  // adds n to the exponents; casts keep bits
}

template <int lanes>
CALOPIPE_INLINE void silu_here(float* into, const float* values, int count, bool added) {
  using Vector = typename Lanes<lanes>::Float;
  for (int at = 0; at < count; at += lanes) {
    Vector x, e, before = {};
    load(x, values + at);
    if (added) load(before, into + at);
    exp_of_minus<lanes>(x, e);
    store(into + at, before + x / (1.0f + e));
  }
}

// out (rows, wide) = begin (wide) + the sum over k of value(r, k) x row k of the kernel, for `columns` vectors from
// column `from` on. k takes the `count` values in `which` or, without it, all k < count. value(r, k) is
// values[r * step + k].
template <int lanes, int rows, int columns>
CALOPIPE_INLINE void tile(const float* kernel, int wide, const int* which, int count, const float* values, int step,
                          const float* begin, float* out, int from) {
  using Vector = typename Lanes<lanes>::Float;
  Vector sum[rows][columns];
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) load(sum[r][c], begin + from + c * lanes);
  for (int each = 0; each < count; ++each) {
    const int k = which ? which[each] : each;
    const float* weights = kernel + k * wide + from;
    Vector weight[columns];
    for (int c = 0; c < columns; ++c) load(weight[c], weights + c * lanes);
    for (int r = 0; r < rows; ++r) {
      const float value = values[r * step + k];
      for (int c = 0; c < columns; ++c) sum[r][c] += value * weight[c];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) store(out + r * wide + from + c * lanes, sum[r][c]);
}

// The same for all columns from `from` on. An addition to a sum waits for the addition before it. So as many sums are
// computed together as there are registers for, then half as many of those that are left, and so on.
template <int lanes, int rows, int columns>
CALOPIPE_INLINE void product(const float* kernel, int wide, const int* which, int count, const float* values, int step,
                             const float* begin, float* out, int from = 0) {
  for (; from + columns * lanes <= wide; from += columns * lanes)
    tile<lanes, rows, columns>(kernel, wide, which, count, values, step, begin, out, from);
  if constexpr (columns > 1)
    product<lanes, rows, columns / 2>(kernel, wide, which, count, values, step, begin, out, from);
}

template <int lanes, int rows, int columns>
CALOPIPE_INLINE void affine_here(const Dense& layer, const float* in, int step, const float* bias, float* out) {
  const float* begin = bias ? bias : layer.bias.data();
  product<lanes, rows, columns>(layer.kernel.data(), layer.wide, nullptr, layer.inputs, in, step, begin, out);
}

template <int lanes, int columns>
CALOPIPE_INLINE void features_here(const Dense& first, const std::vector<Dense>& others, const float* begin,
                                   const int* which, int count, const float* values, float* hidden) {
  const int wide = first.wide, all = kRows * wide;
  constexpr int kMost = 256;
  float more[kRows * kMost];
  product<lanes, kRows, columns>(first.kernel.data(), wide, which, count, values, first.inputs, begin, hidden);
  silu_here<lanes>(hidden, hidden, all, false);
  for (const Dense& layer : others) {
    affine_here<lanes, kRows, columns>(layer, hidden, wide, nullptr, more);
    silu_here<lanes>(hidden, more, all, true);
  }
}

template <int lanes>
CALOPIPE_INLINE float dot_here(const float* one, const float* two, int count) {
  typename Lanes<lanes>::Float a, b, sum = {};
  for (int at = 0; at < count; at += lanes) {
    load(a, one + at);
    load(b, two + at);
    sum += a * b;
  }
  float found = 0;
  for (int k = 0; k < lanes; ++k) found += sum[k];
  return found;
}

CALOPIPE_INLINE void hashed_here(const int* keys, unsigned counter, int count, float* out) {
  const auto one = static_cast<std::uint32_t>(keys[0]), two = static_cast<std::uint32_t>(keys[1]);
  const std::uint32_t begin = counter * static_cast<std::uint32_t>(count);
  for (int k = 0; k < count; ++k) {
    std::uint32_t bits = (begin + static_cast<std::uint32_t>(k)) * 0x9E3779B1u + one;
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u + two;
    bits = (bits ^ bits >> 16) * 0xCC9E2D51u;
    bits = (bits ^ bits >> 13) * 0x1B873593u + one;
    bits ^= bits >> 16;
    out[k] = static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24f;
  }
}

#if defined(__x86_64__)
#define CALOPIPE_WIDEST __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define CALOPIPE_WIDE __attribute__((target("avx2,fma")))
enum class Processor { kAny, kWide, kWidest };
const Processor processor = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                                ? Processor::kWidest
                            : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Processor::kWide
                                                                                              : Processor::kAny;
// Defines NAME_widest, NAME_wide and NAME_any, and NAME itself, which calls the best of them.
#define CALOPIPE_VERSIONS(type, name, parameters, arguments, widest, wide, any) \
  CALOPIPE_WIDEST static type name##_widest parameters { return widest; }       \
  CALOPIPE_WIDE static type name##_wide parameters { return wide; }             \
  static type name##_any parameters { return any; }                             \
  type name parameters {                                                        \
    if (processor == Processor::kWidest) return name##_widest arguments;        \
    if (processor == Processor::kWide) return name##_wide arguments;            \
    return name##_any arguments;                                                \
  }
#else
#define CALOPIPE_VERSIONS(type, name, parameters, arguments, widest, wide, any) \
  type name parameters { return any; }
#endif

}  // namespace

CALOPIPE_VERSIONS(void, affine, (const Dense& layer, const float* in, float* out, const float* bias),
                  (layer, in, out, bias), (affine_here<16, 1, 8>(layer, in, 0, bias, out)),
                  (affine_here<8, 1, 8>(layer, in, 0, bias, out)), (affine_here<4, 1, 8>(layer, in, 0, bias, out)))

CALOPIPE_VERSIONS(void, affine_of_rows, (const Dense& layer, const float* in, float* out), (layer, in, out),
                  (affine_here<16, kRows, 4>(layer, in, layer.inputs, nullptr, out)),
                  (affine_here<8, kRows, 2>(layer, in, layer.inputs, nullptr, out)),
                  (affine_here<4, kRows, 2>(layer, in, layer.inputs, nullptr, out)))

CALOPIPE_VERSIONS(void, silu, (float* values, int count), (values, count), silu_here<16>(values, values, count, false),
                  silu_here<8>(values, values, count, false), silu_here<4>(values, values, count, false))

CALOPIPE_VERSIONS(void, add_silu, (float* into, const float* values, int count), (into, values, count),
                  silu_here<16>(into, values, count, true), silu_here<8>(into, values, count, true),
                  silu_here<4>(into, values, count, true))

CALOPIPE_VERSIONS(float, dot, (const float* one, const float* two, int count), (one, two, count),
                  dot_here<16>(one, two, count), dot_here<8>(one, two, count), dot_here<4>(one, two, count))

CALOPIPE_VERSIONS(void, features,
                  (const Dense& first, const std::vector<Dense>& others, const float* begin, const int* which,
                   int count, const float* values, float* hidden),
                  (first, others, begin, which, count, values, hidden),
                  (features_here<16, 4>(first, others, begin, which, count, values, hidden)),
                  (features_here<8, 2>(first, others, begin, which, count, values, hidden)),
                  (features_here<4, 2>(first, others, begin, which, count, values, hidden)))

CALOPIPE_VERSIONS(void, hashed_uniform, (const int* keys, unsigned counter, int count, float* out),
                  (keys, counter, count, out), hashed_here(keys, counter, count, out),
                  hashed_here(keys, counter, count, out), hashed_here(keys, counter, count, out))

}  // namespace calopipe
