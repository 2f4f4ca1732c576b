#include "file.hh"

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace calopipe {

TensorFile::TensorFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot be opened");
  std::ostringstream read;
  if (!(read << stream.rdbuf())) throw std::runtime_error("cannot be read, or is empty");
  const std::string whole = read.str();
  std::uint64_t length = 0;
  for (std::size_t byte = 0; byte < 8 && byte < whole.size(); ++byte) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(whole[byte])) << 8 * byte;
  }
  if (whole.size() < 8 || length > whole.size() - 8) throw std::runtime_error("not a whole file of safetensors");
  header_ = Json::parse(std::string_view(whole).substr(8, length));
  arrays_ = whole.substr(8 + length);
}

std::uint32_t TensorFile::checksum() const {
  std::uint32_t found = 0xffffffffU;
  for (const char each : arrays_) {
    found ^= static_cast<unsigned char>(each);
    for (int bit = 0; bit < 8; ++bit) found = (found >> 1U) ^ ((found & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~found;
}

std::vector<std::size_t> TensorFile::shape(const std::string& name) const {
  std::vector<std::size_t> found;
  for (const Json& each : header_[name]["shape"].as_array()) {
    const double count = each.as_number();
    if (!(count >= 0 && count <= 1e9)) throw std::runtime_error("the array \"" + name + "\" is of no shape");
    found.push_back(static_cast<std::size_t>(count));
  }
  return found;
}

template <class Number>
std::vector<Number> TensorFile::numbers(const std::string& name, const std::vector<std::size_t>& expected,
                                        const char* type) const {
  if (shape(name) != expected || header_[name]["dtype"].as_string() != type) {
    throw std::runtime_error("the array \"" + name + "\" is not what this version of the library reads");
  }
  double size = sizeof(Number);
  for (const std::size_t each : expected) size *= static_cast<double>(each);
  const Json& ends = header_[name]["data_offsets"];
  const double begin = ends[0].as_number(), end = ends[1].as_number();
  if (!(begin >= 0 && end - begin == size && end <= static_cast<double>(arrays_.size()))) {
    throw std::runtime_error("the array \"" + name + "\" is not whole");
  }
  std::vector<Number> found(static_cast<std::size_t>(size) / sizeof(Number));
  if (!found.empty()) {
    std::memcpy(found.data(), arrays_.data() + static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  }
  return found;
}

std::vector<float> TensorFile::floats(const std::string& name, const std::vector<std::size_t>& shape) const {
  return numbers<float>(name, shape, "F32");
}

std::vector<std::int32_t> TensorFile::integers(const std::string& name, const std::vector<std::size_t>& shape) const {
  return numbers<std::int32_t>(name, shape, "I32");
}

}  // namespace calopipe
