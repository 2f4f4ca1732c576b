// Draws showers of an exported model:
//
//   calopipe-showers FILE.safetensors < requests > deposits
//
// A request is a line of numbers: energy in GeV, theta and phi in rad, the PDG code, and the noise of a shower. If the
// noise is missing, it is drawn from a fixed seed. The answer to a request is a line with the number of deposits, and a
// line for each deposit: x, y, layer, GeV.
//
//   calopipe-showers --time N FILE.safetensors < requests
//
// draws each request N times, and writes the milliseconds of processor time that a shower takes.
#include "calopipe/showers.hh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Request {
  calopipe::Labels labels;
  std::vector<float> noise;
};

std::vector<Request> requests(const calopipe::Model& model) {
  std::vector<Request> found;
  std::mt19937 random(1);  // the same in every run
  std::uniform_int_distribution<int> bits(0, (1 << 24) - 1);
  const auto numbers = static_cast<std::size_t>(model.noise_numbers());
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Request each;
    words >> each.labels.energy_gev >> each.labels.theta_rad >> each.labels.phi_rad >> each.labels.pdg;
    if (!words) throw std::runtime_error("a request needs energy, theta, phi and PDG code, found: " + line);
    for (float number = 0; words >> number;) each.noise.push_back(number);
    if (!words.eof()) throw std::runtime_error("a request has something else than numbers: " + line);
    if (each.noise.empty()) {
      for (std::size_t k = 0; k < numbers; ++k) each.noise.push_back(std::ldexp(static_cast<float>(bits(random)), -24));
    }
    if (each.noise.size() != numbers) {
      throw std::runtime_error("a request has " + std::to_string(each.noise.size()) + " numbers of noise, expected " +
                               std::to_string(numbers));
    }
    found.push_back(std::move(each));
  }
  return found;
}

void run(const std::string& file, int times) {
  const auto model = calopipe::Model::load(file);
  calopipe::Sampler sampler(model);
  std::vector<calopipe::Deposit> deposits;
  const auto asked = requests(*model);
  const std::clock_t begin = std::clock();
  for (int time = 0; time < times; ++time) {
    for (const Request& each : asked) sampler.draw(each.labels, each.noise.data(), deposits);
  }
  if (times > 0) {
    if (asked.empty()) throw std::runtime_error("there is no request to time");
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    std::printf("%.4f\n", 1e3 * seconds / (times * static_cast<double>(asked.size())));
    return;
  }
  for (const Request& each : asked) {
    sampler.draw(each.labels, each.noise.data(), deposits);
    std::printf("%zu\n", deposits.size());
    for (const auto& one : deposits) {
      std::printf("%d %d %d %.9g\n", one.x, one.y, one.layer, static_cast<double>(one.energy_gev));
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const bool timed = count == 4 && std::strcmp(words[1], "--time") == 0;
  if (count != 2 && !timed) {
    std::fprintf(stderr, "calopipe-showers: expected [--time N] FILE.safetensors\n");
    return 2;
  }
  try {
    const int times = timed ? std::atoi(words[2]) : 0;
    if (timed && std::to_string(times) != words[2]) throw std::runtime_error("--time takes a whole number");
    if (timed && times < 1) throw std::runtime_error("--time takes a number of 1 or more");
    run(words[count - 1], times);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw std::runtime_error("the output cannot be written");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "calopipe-showers: %s\n", error.what());
    return 2;
  }
}
