#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/exchange/exchange.h"

namespace gradwire::exchange {

/// Implements Exchange::load_state(): copies `saved` into the memory of `live`, by name, and zeros
/// what is missing. Throws Exception(invalid_argument) that names the parameter if a count or type
/// differs; then nothing was copied.
void load_exchange_state(const std::vector<Exchange::State>& live,
                         const std::vector<Exchange::SavedState>& saved);

/// Drops the state that depends on how buckets are cut, if `layout` (the live "codec.layout")
/// differs from the saved one, as in a job of another size. That is the state whose name ends in
/// `ending`, such as ".mean"; if `ending` is empty, all state but "codec.step".
std::vector<Exchange::SavedState> without_other_layouts(std::vector<Exchange::SavedState> saved,
                                                        const LentSpan& layout,
                                                        std::string_view ending);

/// A copy of an exchange's state.
class ExchangeStateCopy {
 public:
  explicit ExchangeStateCopy(const std::vector<Exchange::State>& live);

  /// Refers to the copy's memory.
  std::vector<Exchange::SavedState> saved() const;

 private:
  struct Entry {
    std::string name;
    DataType type;
    std::size_t count;
    std::vector<std::byte> bytes;
  };
  std::vector<Entry> entries_;
};

}  // namespace gradwire::exchange
