#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gradwire/base/error.h"
#include "gradwire/net/shm/byte_ring.h"
#include "gradwire/net/socket.h"

namespace gradwire::net {

/// Deleter that unmaps memory of mmap(2).
struct UnmapMemory {
  std::size_t size = 0;
  void operator()(std::byte* at) const;
};

/// Memory shared by two ranks of one machine: a ring in each direction, and their sleep flags. It
/// has no name, and is freed when neither process maps it any more.
class SharedPair {
 public:
  /// Role of a process.
  enum class End : std::uint8_t { maker = 0, taker = 1 };

  /// Creates the memory. The rings are populated when they are first written to: with many ranks or
  /// groups on a machine, most pairs exchange little or nothing. `ring_bytes` must be a power of
  /// two, at least a page. Fails with system (out of memory, or memory cannot be shared).
  static Result<SharedPair> make(std::size_t ring_bytes);

  /// Maps the memory of a descriptor received from its maker. Fails with system or corrupted (wrong
  /// size).
  static Result<SharedPair> take(Socket descriptor, std::size_t ring_bytes);

  /// The maker's descriptor, to be passed to the taker; valid until forget_descriptor().
  const Socket& descriptor() const { return descriptor_; }
  void forget_descriptor() { descriptor_.close(); }

  RingMemory outgoing() const { return ring(end_ == End::maker ? 0 : 1); }
  RingMemory incoming() const { return ring(end_ == End::maker ? 1 : 0); }

  /// Set by a rank that is about to sleep, cleared by the peer that wakes it.
  std::atomic<std::uint32_t>& we_sleep() const { return sleeps(end_); }
  std::atomic<std::uint32_t>& they_sleep() const {
    return sleeps(end_ == End::maker ? End::taker : End::maker);
  }

 private:
  struct Head;
  SharedPair() = default;
  static Result<SharedPair> map(Socket descriptor, std::size_t ring_bytes, End end);
  Head& head() const;
  RingMemory ring(std::size_t index) const;
  std::atomic<std::uint32_t>& sleeps(End end) const;

  Socket descriptor_;
  std::unique_ptr<std::byte, UnmapMemory> memory_;
  std::size_t ring_bytes_ = 0;
  End end_ = End::maker;
};

}  // namespace gradwire::net
