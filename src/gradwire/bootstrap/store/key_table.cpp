#include "gradwire/bootstrap/store/key_table.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "gradwire/bootstrap/store/store_protocol.h"

namespace gradwire::bootstrap {

const std::string* KeyTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Status KeyTable::set(const std::string& key, std::string value) {
  const std::string* old = find(key);
  const std::size_t freed = old == nullptr ? 0 : key.size() + old->size();
  const std::size_t after = bytes_ - freed + key.size() + value.size();
  if (after > max_bytes_) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("the job's store is full ({} MiB)", max_bytes_ >> 20));
  }
  bytes_ = after;
  values_.insert_or_assign(key, std::move(value));
  return {};
}

Status KeyTable::append(const std::string& key, const std::string& value) {
  const std::string* old = find(key);
  if (old == nullptr) return set(key, value);
  if (old->size() + value.size() > kMaxStoreValueBytes) {
    return failure(ErrorKind::invalid_argument,
                   fmt::format("\"{}\" in the job's store would have more than {} MiB", key,
                               kMaxStoreValueBytes >> 20));
  }
  return set(key, *old + value);
}

Result<std::int64_t> KeyTable::add(const std::string& key, std::int64_t amount) {
  std::int64_t before = 0;
  if (const std::string* old = find(key)) {
    const char* end = old->data() + old->size();
    const auto read = std::from_chars(old->data(), end, before);
    if (read.ec != std::errc() || read.ptr != end) {
      return failure(
          ErrorKind::invalid_argument,
          fmt::format("\"{}\" in the job's store is not an integer, so nothing can be added to it",
                      key));
    }
  }
  // Wraps around, as c10d's stores do, but without undefined behavior.
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(before) +
                                             static_cast<std::uint64_t>(amount));
  GRADWIRE_RETURN_IF_ERROR(set(key, fmt::to_string(sum)));
  return sum;
}

Result<std::string> KeyTable::compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) {
  const std::string* old = find(key);
  const bool fits = old == nullptr ? expected.empty() : *old == expected;
  if (!fits) return old == nullptr ? expected : *old;
  GRADWIRE_RETURN_IF_ERROR(set(key, desired));
  return desired;
}

bool KeyTable::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return true;
}

}  // namespace gradwire::bootstrap
