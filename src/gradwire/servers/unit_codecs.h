#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/codec/codec.h"
#include "gradwire/exchange/exchange.h"

namespace gradwire::servers {

/// How gradients and values are encoded between workers and servers, the same on all.
struct CodecSettings {
  std::string push = "none";  ///< An element-wise codec of codec/catalogue.h.
  std::string pull = "none";  ///< Or "bf16".
  int warmup_steps = 0;       ///< ExchangeOptions::warmup_steps, in steps of each worker.
  std::uint64_t seed = 1;     ///< Seed of randomized codecs.

  bool any() const { return push != "none" || pull != "none"; }
  bool operator==(const CodecSettings&) const = default;
};

/// Throws Exception(invalid_argument) for a codec that a part of a unit cannot have: unknown ones,
/// auto and power_sgd.
void check(const CodecSettings& settings);

/// The codecs of messages between a worker and a server, which know them from the message's unit
/// and clock. Units with skip_compression have none. Thread-safe.
class UnitCodecs {
 public:
  using Pointer = std::shared_ptr<const codec::Codec>;

  /// `slices`: of each unit (Placement). Throws as check(), and for a unit that is not float32 and
  /// lacks skip_compression.
  UnitCodecs(const CodecSettings& settings, const std::vector<exchange::UnitShape>& units,
             int slices);

  /// The codec of a gradient of `clock`; null: it is sent as it is. `unit` as servers number them.
  Pointer push(std::size_t unit, std::int64_t clock) const;
  /// The codec of the values; null: they are sent as they are.
  Pointer pull(std::size_t unit) const { return is_coded(unit) ? pull_ : nullptr; }

  /// Seed of the random numbers of one push: of a worker, or its group, to a server.
  std::uint64_t seed_of(std::size_t unit, int server, int group, std::int64_t clock) const;
  bool is_coded(std::size_t unit) const { return coded_[unit / slices_]; }
  bool wants_feedback() const { return push_ && push_->wants_feedback(); }

 private:
  CodecSettings settings_;
  std::vector<bool> coded_;  ///< By unit of the model.
  std::size_t slices_;
  codec::CodecSpec spec_;  ///< The codec of pushes.
  Pointer push_, pull_;    ///< Null: none.
};

}  // namespace gradwire::servers
