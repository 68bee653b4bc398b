#include "gradwire/base/json_document.h"

#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

/// Counts the lines that the parser has read. A line feed belongs to the line that it ends.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (after_line_feed_) ++*line_;
    after_line_feed_ = *at_++ == '\n';
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
  bool after_line_feed_ = false;
};

/// Refuses keys that an object has twice, and NUL characters, as the parser meets them.
class Strictness {
 public:
  bool operator()(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        check_key(parsed.get_ref<const std::string&>());
        break;
      case Json::parse_event_t::value:
        if (parsed.is_string()) check_text(parsed.get_ref<const std::string&>());
        break;
      default:
        break;
    }
    return true;
  }

 private:
  void check_key(const std::string& key) {
    check_text(key);
    if (!keys_.back().insert(key).second) {
      refuse("the key \"{}\" stands twice in one object; leave one of them out", key);
    }
  }
  static void check_text(const std::string& text) {
    if (text.find('\0') == std::string::npos) return;
    refuse("\"{}\\u0000...\" contains a NUL character", text.substr(0, text.find('\0')));
  }

  std::vector<std::set<std::string>> keys_;  ///< Keys of the objects that are open.
};

/// The library's message, without its identifier "[json.exception.parse_error.101] ".
std::string message_of(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const auto begin = text.find("] ");
  return std::string(begin == std::string_view::npos ? text : text.substr(begin + 2));
}

}  // namespace

Result<Json> parse_json_document(std::string_view text, std::string_view name,
                                 JsonComments comments) {
  int line = 1;
  Strictness strict;
  const auto fails = [&](const std::string& why) {
    return failure(ErrorKind::invalid_argument, fmt::format("{}:{}: {}", name, line, why));
  };
  try {
    return Json::parse(
        CountingIterator(text.data(), &line), CountingIterator(text.data() + text.size(), &line),
        [&](int, Json::parse_event_t event, Json& parsed) { return strict(event, parsed); },
        /*allow_exceptions=*/true, comments == JsonComments::ignored);
  } catch (const nlohmann::json::parse_error& error) {
    return fails("it is not JSON: " + message_of(error));
  } catch (const nlohmann::json::exception& error) {  // A number that no double can hold.
    return fails(message_of(error));
  } catch (const Exception& error) {
    return fails(error.what());
  }
}

}  // namespace gradwire
