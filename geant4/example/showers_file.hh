// Showers as HDF5, in the layouts that calopipe reads (docs/formats.md).
#pragma once

#include <hdf5.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "detector.hh"

struct Shower {
  double energy_gev = 0, theta = 0, time_ns = 0;
  std::array<double, 3> middle_mm{};
  std::vector<float> cells;  // energies in MeV, in the order of Cells
};

// Energy and theta, in Geant4's units, of the showers of a file. Throws std::runtime_error in one line.
std::vector<std::pair<double, double>> labels_of(const std::string& file);

// Writes FILE.part, which becomes FILE when it is closed.
class ShowersFile {
 public:
  // Throws std::runtime_error in one line if the file cannot be written.
  ShowersFile(std::string file, const Shape& shape, bool cylinder);
  ~ShowersFile();
  ShowersFile(const ShowersFile&) = delete;
  ShowersFile& operator=(const ShowersFile&) = delete;

  // Adds the shower `number`; numbers count from 0 in each run. Showers may be added in any order, and are written in
  // the order of their numbers.
  void add(int number, Shower shower);
  void end_run();
  void close();
  long showers() const { return written_ + static_cast<long>(ready_.size()); }

 private:
  struct Column {
    hid_t set;
    hsize_t width;  // numbers of a shower
    std::vector<hsize_t> shape;
  };
  void make(const char* name, hid_t type, std::vector<hsize_t> shape);
  void extend(const char* name, hid_t type, const void* values, hsize_t showers);
  void attribute(const char* name, double value);
  void attribute(const char* name, const std::string& text);
  void take();
  void flush();

  const std::string file_;
  const Shape shape_;
  const bool cylinder_;
  hid_t handle_ = -1;
  std::map<std::string, Column> columns_;
  std::map<int, Shower> waiting_;
  std::vector<Shower> ready_;
  int next_ = 0;
  long written_ = 0;
};
