#include "json.hh"

#include <locale>
#include <sstream>
#include <stdexcept>

namespace calopipe {
namespace {

constexpr int kDeepest = 64;  // levels of nesting

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json whole() {
    Json found = value(0);
    if (next() != '\0') fail();
    return found;
  }

 private:
  [[noreturn]] static void fail() { throw std::runtime_error("not a JSON document"); }

  // The next character that is no space, '\0' at the end.
  char next() {
    const auto at = text_.find_first_not_of(" \t\r\n", at_);
    at_ = at == std::string_view::npos ? text_.size() : at;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool taken(char expected) {
    if (next() != expected) return false;
    ++at_;
    return true;
  }

  Json value(int depth) {
    if (depth > kDeepest) fail();
    Json found;
    switch (next()) {
      case '{':
        found.kind = Json::Kind::kObject;
        list('}', [&] {
          if (next() != '"') fail();
          std::string name = quoted();
          if (!taken(':')) fail();
          found.members[std::move(name)] = value(depth + 1);
        });
        break;
      case '[':
        found.kind = Json::Kind::kArray;
        list(']', [&] { found.elements.push_back(value(depth + 1)); });
        break;
      case '"':
        found.kind = Json::Kind::kString;
        found.string = quoted();
        break;
      default:
        word(found);
    }
    return found;
  }

  template <class Element>
  void list(char end, Element element) {
    ++at_;
    if (taken(end)) return;
    do element();
    while (taken(','));
    if (!taken(end)) fail();
  }

  void word(Json& found) {
    const auto end = text_.find_first_of(" \t\r\n,]}", at_);
    const std::string word(text_.substr(at_, end == std::string_view::npos ? end : end - at_));
    at_ += word.size();
    if (word == "null") return;
    found.kind = word == "true" || word == "false" ? Json::Kind::kBool : Json::Kind::kNumber;
    found.number = word == "true";
    if (found.kind == Json::Kind::kBool) return;
    std::istringstream digits(word);
    digits.imbue(std::locale::classic());  // not the program's own locale
    if (!(digits >> found.number) || digits.peek() != std::char_traits<char>::eof()) fail();
  }

  std::string quoted() {
    std::string found;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        found += text_[at_];
        continue;
      }
      if (++at_ >= text_.size()) fail();
      static constexpr std::string_view kNames = "bfnrt", kMeant = "\b\f\n\r\t";
      const auto place = kNames.find(text_[at_]);
      if (text_[at_] == 'u') {
        found += utf8();
      } else {
        found += place == std::string_view::npos ? text_[at_] : kMeant[place];
      }
    }
    if (at_++ >= text_.size()) fail();
    return found;
  }

  // The character that \uXXXX stands for; the four characters that follow are the X.
  std::string utf8() {
    if (at_ + 4 >= text_.size()) fail();
    const auto code = std::strtoul(std::string(text_.substr(at_ + 1, 4)).c_str(), nullptr, 16);
    at_ += 4;
    if (code < 0x80) return {static_cast<char>(code)};
    const auto last = static_cast<char>(0x80 | (code & 0x3F));
    if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), last};
    return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)), last};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).whole(); }

const Json& Json::operator[](const std::string& name) const {
  const auto found = members.find(name);
  if (found == members.end()) throw std::runtime_error("\"" + name + "\" is missing");
  return found->second;
}

const Json& Json::operator[](std::size_t index) const {
  if (index >= elements.size()) throw std::runtime_error("a list is too short");
  return elements[index];
}

double Json::as_number() const {
  if (kind != Kind::kNumber) throw std::runtime_error("something is no number");
  return number;
}

const std::string& Json::as_string() const {
  if (kind != Kind::kString) throw std::runtime_error("something is no string");
  return string;
}

const std::vector<Json>& Json::as_array() const {
  if (kind != Kind::kArray) throw std::runtime_error("something is no list");
  return elements;
}

}  // namespace calopipe
