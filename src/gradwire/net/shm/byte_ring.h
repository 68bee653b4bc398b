#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "gradwire/base/bytes.h"

namespace gradwire::net {

/// Bytes of a cache line, the unit of transfer between cores.
inline constexpr std::size_t kCacheLine = 64;

/// Shared state of a ring. All fields are zero initially. The cursors count all bytes ever written
/// and read, so that full and empty differ. Each has its own cache line, because one end writes it
/// and the other polls it.
struct RingControl {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;
  /// Cursor of the byte at the beginning of the memory; changes only while no byte is unread.
  std::atomic<std::uint64_t> origin;
  alignas(kCacheLine) std::atomic<std::uint64_t> read;
  /// The writer has more bytes than fit, and waits for room.
  alignas(kCacheLine) std::atomic<std::uint32_t> writer_blocked;
  /// End of stream: no more bytes will be written.
  std::atomic<std::uint32_t> ended;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Returns the page size of this machine in bytes.
std::size_t page_bytes();

/// One ring in this process's memory. `data` is mapped twice in succession, so any `capacity` bytes
/// that start in the first copy are contiguous.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::size_t capacity = 0;  ///< A power of two.
  /// False: the kernel has not allocated memory for `data`, which begins a page. The writer then
  /// populates it before the first write, because a machine out of memory reports that as an error,
  /// but an unpopulated write as a signal (SIGBUS).
  bool in_memory = true;
};

/// A blocked writer is woken when this part of the ring is free: waking it for every few bytes
/// would cost too much. The reader must be able to continue with the rest.
inline std::size_t room_worth_waking(std::size_t capacity) {
  return capacity / 4;
}

/// The writing end of a ring between two threads or processes, one at each end. Lock-free, after
/// Lamport, "Proving the correctness of multiprocess programs" (1977). The other end's cursor is
/// read only when the ring seems full (Lee, Bu, Chandranmenon, "A lock-free, cache-efficient
/// multi-core synchronization mechanism", 2009).
///
/// It uses no more memory than the maximum of unread bytes requires: until the whole ring is
/// populated, it restarts at the first byte whenever the reader has read everything.
class RingWriter {
 public:
  RingWriter() = default;
  explicit RingWriter(RingMemory memory)
      : memory_(memory), in_memory_(memory.in_memory ? kAll : 0) {}

  /// Copies as many bytes as fit. Returns the number copied.
  std::size_t copy_in(ConstBytes bytes);

  /// Returns true if the kernel has no memory for the ring: nothing can be written any more.
  bool out_of_memory() const { return out_of_memory_; }

  /// Returns the number of written bytes that are not visible to the reader.
  std::size_t unpublished() const { return static_cast<std::size_t>(written_ - published_); }
  /// Makes all written bytes visible to the reader.
  void publish();

  /// Publishes, and requests a wake-up when there is room. Returns true if there is room already.
  bool block();

  void end() { memory_.control->ended.store(1, std::memory_order_release); }

  std::uint64_t written() const { return written_; }

 private:
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  std::size_t room() const;
  std::size_t position() const;
  void get_memory(std::size_t size);

  RingMemory memory_;
  std::size_t in_memory_ = 0;  ///< Populated bytes from the beginning of the ring, or kAll.
  bool out_of_memory_ = false;
  std::uint64_t origin_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t read_seen_ = 0;
};

/// The reading end.
class RingReader {
 public:
  RingReader() = default;
  explicit RingReader(RingMemory memory) : memory_(memory) {}

  /// Returns all available bytes, contiguous. They stay valid until consumed.
  ConstBytes peek();

  /// Returns the first `size` bytes to the writer.
  void consume(std::size_t size);

  /// Returns true if the writer has ended the stream; peek() then returns all remaining bytes.
  bool ended() const { return memory_.control->ended.load(std::memory_order_acquire) != 0; }

  /// Returns true if the other end has written an invalid cursor, beyond the ring.
  bool corrupt() const { return corrupt_; }

 private:
  RingMemory memory_;
  std::uint64_t read_ = 0;
  bool corrupt_ = false;
};

/// Read-only view of a ring's state (except unblock_writer()), usable from any thread of either
/// end.
class RingView {
 public:
  explicit RingView(const RingMemory& memory)
      : control_(*memory.control), capacity_(memory.capacity) {}

  std::uint64_t written() const { return control_.written.load(std::memory_order_acquire); }
  std::uint64_t read() const { return control_.read.load(std::memory_order_acquire); }
  bool ended() const { return control_.ended.load(std::memory_order_acquire) != 0; }
  bool writer_blocked() const {
    return control_.writer_blocked.load(std::memory_order_relaxed) != 0;
  }
  bool has_room_worth_waking() const {
    return capacity_ - (written() - read()) >= room_worth_waking(capacity_);
  }
  /// Clears the writer's request for a wake-up.
  void unblock_writer() { control_.writer_blocked.store(0, std::memory_order_relaxed); }

 private:
  RingControl& control_;
  std::size_t capacity_;
};

}  // namespace gradwire::net
