#include "cells.hh"

#include <algorithm>
#include <array>
#include <cmath>

namespace calopipe {

namespace {

// For each of the two layers before, the share of its energy in the cell at the same place: kSharesBefore numbers.
void shares_before(const LayerFrame& frame, const Images& images, int place, float* out) {
  const int* middle = frame.around(place) + kAround + kAround / 2;
  for (const Image* image : {&images.one, &images.two}) {
    *out++ = image->share[size(*middle)];
    middle += kAround;
  }
}

// The deposits around the cell, scaled: kAround numbers for each of the two layers before and, if `own`, for the even
// cells of this layer.
void deposits_around(const LayerFrame& frame, const Images& images, int place, bool own, float* out) {
  const int* around = frame.around(place);
  const auto take = [&](const Numbers& image, int part) {
    for (int k = 0; k < kAround; ++k) *out++ = image[size(around[part * kAround + k])];
  };
  take(images.one.scaled, 1);
  take(images.two.scaled, 2);
  if (own) take(images.own, 0);
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
      if (k % 2 == 0) even += energy[size(k)];  // cells of the middle cell's colour
    }
    const float least = kSure * whole + kNone;
    for (const float part : {even, energy[kAround / 2]}) {
      *out++ = std::log(part + least) - std::log(whole - part + least);
    }
    for (const int k : kNearest) *near++ = whole > 0 ? energy[size(k)] / whole : 0.0f;
  }
  out = near;
  shares_before(frame, images, frame.met_place, out);
  frame.place_numbers(frame.met_place, frame.seen(frame.met_place), out + kSharesBefore);
}

void Cells::evaluate(const LayerFrame& frame, const CellDensity& density, const Numbers& contexts,
                     const Images& images) {
  share(density, contexts);
  const std::size_t inputs = size(density.cell_in.inputs), neighbours = inputs - size(frame.mesh.of_place());
  const std::size_t blocks = (places.size() + kRows - 1) / kRows;
  features_.resize(blocks * kRows * wide_);
  where.resize(places.size());
  values_.resize(kRows * inputs);
  which_.resize(inputs);
  for (std::size_t block = 0; block < blocks; ++block) {
    used_.assign(inputs, 0.0f);
    for (std::size_t r = 0; r < kRows; ++r) {  // the last cell fills up the last block
      const std::size_t cell = std::min(block * kRows + r, places.size() - 1);
      const int place = places[cell];
      float* own = values_.data() + r * inputs;
      deposits_around(frame, images, place, neighbours > 2 * kAround, own);
      where[cell] = frame.seen(place);
      shares_before(frame, images, place, own + neighbours);
      frame.place_numbers(place, where[cell], own + neighbours + kSharesBefore);
      for (std::size_t k = 0; k < inputs; ++k) used_[k] += std::abs(own[k]);
    }
    int count = 0;
    for (std::size_t k = 0; k < inputs; ++k) {
      which_[size(count)] = static_cast<int>(k);
      count += used_[k] != 0;
    }
    features(density.cell_in, density.hidden, shared_.data(), which_.data(), count, values_.data(),
             features_.data() + block * kRows * wide_);
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

float Cells::log_odds(const LayerFrame& frame, const CellDensity& density, std::size_t cell) const {
  const float odds = dot(density.occupied.data(), features_of(cell), static_cast<int>(wide_));
  return density.occupied_bias + odds + frame.prior(frame.of.odds, where[cell][3]);
}

}  // namespace calopipe
