#include "showers_file.hh"

#include <G4SystemOfUnits.hh>
#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace {

constexpr std::size_t together = 20;         // showers in a chunk
constexpr double unit_mev = 20;              // of the sample: a deposit of 1 is 0.02 GeV
constexpr double sampling_fraction = .0313;  // of the cylinder: deposits are divided by it
constexpr double least_mev = .01515;         // of the cylinder: smaller quotients become 0

hid_t checked(hid_t handle, const std::string& what) {
  if (handle < 0) throw std::runtime_error(what);
  return handle;
}

std::vector<double> column_of(hid_t file, const char* name, const std::string& path) {
  const hid_t set = checked(H5Dopen2(file, name, H5P_DEFAULT), path + ": there is no dataset " + name);
  const hid_t space = H5Dget_space(set);
  std::vector<double> found(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  const herr_t read = H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data());
  H5Sclose(space);
  H5Dclose(set);
  checked(read, path + ": the dataset " + name + " cannot be read");
  return found;
}

}  // namespace

std::vector<std::pair<double, double>> labels_of(const std::string& path) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  const hid_t file = checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), path + ": no HDF5 file can be opened");
  const bool challenge = H5Lexists(file, "incident_energies", H5P_DEFAULT) > 0;
  const auto energy = column_of(file, challenge ? "incident_energies" : "energy", path);
  const auto theta = challenge ? std::vector<double>(energy.size(), 90 * deg) : column_of(file, "theta", path);
  H5Fclose(file);
  if (theta.size() != energy.size()) throw std::runtime_error(path + ": energy and theta differ in length");
  std::vector<std::pair<double, double>> found;
  for (std::size_t shower = 0; shower < energy.size(); ++shower) {
    found.emplace_back(energy[shower] * (challenge ? MeV : GeV), theta[shower]);
  }
  return found;
}

ShowersFile::ShowersFile(std::string file, const Shape& shape, bool cylinder)
    : file_(std::move(file)), shape_(shape), cylinder_(cylinder) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  handle_ = checked(H5Fcreate((file_ + ".part").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                    file_ + ".part: cannot be written");
  const auto [first, second, layers] = shape.cells;
  const auto count = [](int cells) { return static_cast<hsize_t>(cells); };
  if (cylinder) {
    make("showers", H5T_IEEE_F32LE, {static_cast<hsize_t>(shape.size())});
    make("incident_energies", H5T_IEEE_F64LE, {1});
    attribute("sampling_fraction", sampling_fraction);
  } else {
    make("ECAL", H5T_IEEE_F32LE, {count(first), count(second), count(layers)});
    make("energy", H5T_IEEE_F32LE, {});
    make("theta", H5T_IEEE_F32LE, {});
    attribute("file_unit_gev", unit_mev / 1000);
    attribute("cell_mm", 5.1);
    attribute("layer_pitch_mm", 4.0);
    attribute("x0_per_layer", 1.004);
  }
  make("time_ns", H5T_IEEE_F64LE, {});
  make("middle_mm", H5T_IEEE_F64LE, {3});
  attribute("generator", "calopipe's example for Geant4");
}

ShowersFile::~ShowersFile() {
  if (handle_ >= 0) H5Fclose(handle_);
}

void ShowersFile::make(const char* name, hid_t type, std::vector<hsize_t> shape) {
  Column column{-1, 1, {0}};
  std::vector<hsize_t> most{H5S_UNLIMITED}, chunk{together};
  for (const hsize_t cells : shape) {
    column.width *= cells;
    column.shape.push_back(cells);
    most.push_back(cells);
    chunk.push_back(cells);
  }
  const int dimensions = static_cast<int>(most.size());
  const hid_t space = H5Screate_simple(dimensions, column.shape.data(), most.data());
  const hid_t options = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(options, dimensions, chunk.data());
  H5Pset_deflate(options, 1);
  column.set = checked(H5Dcreate2(handle_, name, type, space, H5P_DEFAULT, options, H5P_DEFAULT),
                       file_ + ".part: the dataset " + name + " cannot be made");
  H5Pclose(options);
  H5Sclose(space);
  columns_[name] = column;
}

void ShowersFile::extend(const char* name, hid_t type, const void* values, hsize_t showers) {
  Column& column = columns_.at(name);
  std::vector<hsize_t> start(column.shape.size(), 0), count = column.shape;
  start[0] = column.shape[0];
  count[0] = showers;
  column.shape[0] += showers;
  H5Dset_extent(column.set, column.shape.data());
  const hid_t to = H5Dget_space(column.set);
  H5Sselect_hyperslab(to, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
  const hid_t from = H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr);
  const herr_t done = H5Dwrite(column.set, type, from, to, H5P_DEFAULT, values);
  H5Sclose(from);
  H5Sclose(to);
  checked(done, file_ + ".part: cannot be written");
}

void ShowersFile::attribute(const char* name, double value) {
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t made = H5Acreate2(handle_, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(made, H5T_NATIVE_DOUBLE, &value);
  H5Aclose(made);
  H5Sclose(space);
}

void ShowersFile::attribute(const char* name, const std::string& text) {
  const hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, text.size());
  const hid_t made = H5Acreate2(handle_, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(made, type, text.data());
  H5Aclose(made);
  H5Tclose(type);
  H5Sclose(space);
}

void ShowersFile::add(int number, Shower shower) {
  waiting_.emplace(number, std::move(shower));
  take();
}

// Takes those that come next from the waiting showers, and writes full chunks.
void ShowersFile::take() {
  for (auto next = waiting_.find(next_); next != waiting_.end(); next = waiting_.find(next_)) {
    ready_.push_back(std::move(next->second));
    waiting_.erase(next);
    ++next_;
    if (ready_.size() == together) flush();
  }
}

void ShowersFile::end_run() {
  for (auto& [number, shower] : waiting_) ready_.push_back(std::move(shower));  // those after an aborted event
  waiting_.clear();
  next_ = 0;
}

void ShowersFile::flush() {
  std::vector<float> cells;
  std::vector<double> energy, theta, time, middle;
  for (const Shower& shower : ready_) {
    energy.push_back(shower.energy_gev * (cylinder_ ? 1000 : 1));
    theta.push_back(shower.theta);
    time.push_back(shower.time_ns);
    middle.insert(middle.end(), shower.middle_mm.begin(), shower.middle_mm.end());
    const auto [first, second, layers] = shape_.cells;
    if (!cylinder_) {
      for (const float mev : shower.cells) cells.push_back(static_cast<float>(mev / unit_mev));
      continue;
    }
    for (int layer = 0; layer < layers; ++layer) {
      for (int place = 0; place < first * second; ++place) {
        const double mev = shower.cells[static_cast<std::size_t>(place * layers + layer)] / sampling_fraction;
        cells.push_back(mev < least_mev ? 0.F : static_cast<float>(mev));
      }
    }
  }
  const hsize_t showers = ready_.size();
  extend(cylinder_ ? "showers" : "ECAL", H5T_NATIVE_FLOAT, cells.data(), showers);
  extend(cylinder_ ? "incident_energies" : "energy", H5T_NATIVE_DOUBLE, energy.data(), showers);
  if (!cylinder_) extend("theta", H5T_NATIVE_DOUBLE, theta.data(), showers);
  extend("time_ns", H5T_NATIVE_DOUBLE, time.data(), showers);
  extend("middle_mm", H5T_NATIVE_DOUBLE, middle.data(), showers);
  written_ += static_cast<long>(showers);
  ready_.clear();
}

void ShowersFile::close() {
  if (!ready_.empty()) flush();
  for (auto& [name, column] : columns_) H5Dclose(column.set);
  const herr_t closed = H5Fclose(handle_);
  handle_ = -1;
  checked(closed, file_ + ".part: cannot be closed");
  if (std::rename((file_ + ".part").c_str(), file_.c_str()) != 0)
    throw std::runtime_error(file_ + ": cannot be written");
}
