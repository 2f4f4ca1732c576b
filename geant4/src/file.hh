// Files in the format safetensors: eight bytes with the length of the header, a header in JSON, and the arrays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "json.hh"

namespace calopipe {

class TensorFile {
 public:
  // Throws std::runtime_error where `path` cannot be read or is no such file.
  explicit TensorFile(const std::string& path);

  // The string `name` of the file's metadata. Throws std::runtime_error if there is none.
  const std::string& said(const std::string& name) const { return header_["__metadata__"][name].as_string(); }
  // CRC-32 of all arrays.
  std::uint32_t checksum() const;
  bool has(const std::string& name) const { return header_.has(name); }
  // The shape of an array. Throws std::runtime_error if there is no such array.
  std::vector<std::size_t> shape(const std::string& name) const;
  // The numbers of an array of this `shape`. Throws std::runtime_error if there is no such array.
  std::vector<float> floats(const std::string& name, const std::vector<std::size_t>& shape) const;
  std::vector<std::int32_t> integers(const std::string& name, const std::vector<std::size_t>& shape) const;

 private:
  template <class Number>
  std::vector<Number> numbers(const std::string& name, const std::vector<std::size_t>& shape, const char* type) const;

  Json header_;
  std::string arrays_;
};

}  // namespace calopipe
