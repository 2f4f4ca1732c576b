#include "cells.hh"

#include <algorithm>
#include <array>
#include <cmath>

namespace calopipe {

namespace {

// The shares of either layer before that the cell at the same place holds: kSharesBefore numbers, `stride` apart.
void shares_before(const LayerFrame& frame, const Images& images, int place, float* out, int stride) {
  const int* middle = frame.around(place) + kAround + kAround / 2;
  for (const Image* image : {&images.one, &images.two}) {
    *out = image->share[size(*middle)];
    middle += kAround;
    out += stride;
  }
}

}  // namespace

void Image::clear(std::size_t places) {
  for (Numbers* each : {&scaled, &share}) each->assign(places + 1, 0.0f);
}

void add_scaled(const Constants& of, const Drawn& drawn, Numbers& image) {
  for (std::size_t k = 0; k < drawn.place.size(); ++k) {
    image[size(drawn.place[k])] += std::log(1.0f + drawn.value[k] / of.deposit);
  }
}

void known_of_met(const LayerFrame& frame, const Images& images, float* out) {
  constexpr float kSure = 3e-3f, kNone = 1e-3f;
  constexpr std::array<int, kNear> kNearest = {6, 7, 8, 11, 12, 13, 16, 17, 18};
  const int* around = frame.around(frame.met_place);
  float* near = out + 4;
  for (const Image* image : {&images.one, &images.two}) {
    around += kAround;
    std::array<float, kAround> energy;
    float whole = 0, even = 0;
    for (int k = 0; k < kAround; ++k) {
      energy[size(k)] = std::exp(image->scaled[size(around[k])]) - 1.0f;
      whole += energy[size(k)];
      if (k % 2 == 0) even += energy[size(k)];  // steps of the two indices, in turn
    }
    const float least = kSure * whole + kNone;
    for (const float part : {even, energy[kAround / 2]}) {
      *out++ = std::log(part + least) - std::log(whole - part + least);
    }
    for (const int k : kNearest) *near++ = whole > 0 ? energy[size(k)] / whole : 0.0f;
  }
  out = near;
  shares_before(frame, images, frame.met_place, out, 1);
  frame.place_numbers(frame.met_place, frame.seen(frame.met_place), out + kSharesBefore, 1);
}

void Cells::evaluate(const LayerFrame& frame, const CellDensity& density, const Numbers& contexts,
                     const Images& images) {
  share(density, contexts);
  const std::size_t blocks = (places.size() + kRows - 1) / kRows;
  const int inputs = density.cell_in.inputs, of_place = frame.mesh.of_place(), neighbours = inputs - of_place;
  features_.resize(blocks * kRows * wide_);
  where.resize(places.size());
  values_.resize(size(inputs * kRows));
  which_.resize(size(inputs));
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t first = block * kRows;
    float* into = features_.data() + first * wide_;
    Rows rows;  // the last block repeats its last cell
    for (std::size_t r = 0; r < kRows; ++r) {
      const std::size_t cell = std::min(first + r, places.size() - 1);
      rows[r] = places[cell];
      where[cell] = frame.seen(rows[r]);
      std::copy(shared_.begin(), shared_.end(), into + r * wide_);
    }
    const int count = gather(frame, images, rows, neighbours);
    for (int k = 0; k < of_place; ++k) which_[size(count + k)] = neighbours + k;
    for (std::size_t r = 0; r < kRows; ++r) {
      const Distance& distance = where[std::min(first + r, places.size() - 1)];
      float* own = values_.data() + size(count) * kRows + r;
      shares_before(frame, images, rows[r], own, kRows);
      frame.place_numbers(rows[r], distance, own + kSharesBefore * kRows, kRows);
    }
    features(density.cell_in, density.hidden, which_.data(), values_.data(), count + of_place, into);
  }
}

void Cells::share(const CellDensity& density, const Numbers& contexts) {
  wide_ = size(density.context_out.wide);
  scratch_.resize(size(density.context_in.wide));
  shared_.resize(wide_);
  affine(density.context_in, contexts.data(), scratch_.data());
  silu(scratch_.data(), density.context_in.wide);
  affine(density.context_out, scratch_.data(), shared_.data());
}

// Gathers what is known of the deposits around some cells; says how many of these numbers are not 0 of all of them.
int Cells::gather(const LayerFrame& frame, const Images& images, const Rows& rows, int neighbours) {
  const std::array<const Numbers*, 3> image_of = {&images.one.scaled, &images.two.scaled, &images.own};
  const std::array<int, 3> parts = {1, 2, 0};
  std::array<const int*, kRows> around;
  for (std::size_t r = 0; r < kRows; ++r) {
    around[r] = frame.around(rows[r]);
  }
  int count = 0;
  for (int k = 0; k < neighbours; ++k) {
    const std::size_t part = size(k / kAround);
    const int at = parts[part] * kAround + k % kAround;
    const float* image = image_of[part]->data();
    float* into = values_.data() + count * kRows;
    float any = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      into[r] = image[around[r][at]];
      any += into[r];
    }
    if (any != 0) which_[size(count++)] = k;
  }
  return count;
}

float Cells::log_odds(const LayerFrame& frame, const CellDensity& density, std::size_t cell) const {
  const float odds = dot(density.occupied.data(), features_of(cell), static_cast<int>(wide_));
  return density.occupied_bias + odds + frame.prior(frame.of.odds, where[cell][3]);
}

}  // namespace calopipe
