// JSON documents (RFC 8259), as far as an exported file has them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace calopipe {

struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  // Throws std::runtime_error if `text` is no JSON document.
  static Json parse(std::string_view text);

  // A member of an object, or an element of an array. Throws std::runtime_error if there is none.
  const Json& operator[](const std::string& name) const;
  const Json& operator[](std::size_t index) const;
  bool has(const std::string& name) const { return members.count(name) > 0; }
  double as_number() const;
  const std::string& as_string() const;
  const std::vector<Json>& as_array() const;

  Kind kind = Kind::kNull;
  double number = 0;  // 1 for true, 0 for false
  std::string string;
  std::vector<Json> elements;
  std::map<std::string, Json> members;
};

}  // namespace calopipe
