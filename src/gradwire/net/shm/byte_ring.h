#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "gradwire/base/bytes.h"

namespace gradwire {

/// Bytes that two processors pass back and forth together.
inline constexpr std::size_t kCacheLine = 64;

/// What the two ends of a ring share about it. All zero at first. The cursors count all bytes ever
/// written and read, so that full and empty differ; each on its own cache line, because one end
/// writes it and the other polls it.
struct RingControl {
  alignas(kCacheLine) std::atomic<std::uint64_t> written;
  /// The cursor of the byte at the beginning of the memory; changes only while nothing is unread.
  std::atomic<std::uint64_t> origin;
  alignas(kCacheLine) std::atomic<std::uint64_t> read;
  /// The writer has more than fits, and wants to hear of room.
  alignas(kCacheLine) std::atomic<std::uint32_t> writer_blocked;
  /// No more bytes will be written.
  std::atomic<std::uint32_t> ended;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Bytes of a page of this machine's memory.
std::size_t page_bytes();

/// One ring in this process's memory: `data` is mapped twice in a row, so that any `capacity` bytes
/// from anywhere in the first copy lie in one piece.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  std::size_t capacity = 0;  ///< A power of two.
  /// False: the kernel has given no memory for `data`, which begins a page, yet. The writer asks
  /// for it before it first writes there, as a full machine refuses that with an error, and a write
  /// alone with a signal (SIGBUS).
  bool in_memory = true;
};

/// A writer that was blocked is called back once this part of the ring is free: waking it for every
/// few bytes would cost more than they are worth. The reader must be able to go on with the rest.
inline std::size_t room_worth_waking(std::size_t capacity) {
  return capacity / 4;
}

/// The writing end of a ring between two threads or processes, one at each end. Lock-free, after
/// Lamport, "Proving the correctness of multiprocess programs" (1977), with the other's cursor
/// looked up only when the ring seems full (Lee, Bu, Chandranmenon, "A lock-free, cache-efficient
/// multi-core synchronization mechanism", 2009).
///
/// It takes no more of the memory than what is unread at one time needs: before the whole ring is
/// in memory, it begins anew at the first byte whenever the reader has read all.
class RingWriter {
 public:
  RingWriter() = default;
  explicit RingWriter(RingMemory memory)
      : memory_(memory), in_memory_(memory.in_memory ? kAll : 0) {}

  /// Copies in as much as there is room for. Returns how much.
  std::size_t copy_in(ConstBytes bytes);

  /// Whether the kernel has no memory for the ring: nothing can be written any more.
  bool out_of_memory() const { return out_of_memory_; }

  /// How much the reader cannot see yet.
  std::size_t unpublished() const { return static_cast<std::size_t>(written_ - published_); }
  /// Shows it to the reader.
  void publish();

  /// Asks to be told when there is room, after publishing. Returns whether there is some now.
  bool block();

  void end() { memory_.control->ended.store(1, std::memory_order_release); }

  std::uint64_t written() const { return written_; }

 private:
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

  std::size_t room() const;
  std::size_t position() const;
  void get_memory(std::size_t size);

  RingMemory memory_;
  std::size_t in_memory_ = 0;  ///< So many bytes of the ring's first, or kAll.
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

  /// All that is there, in one piece. It stays until it is consumed.
  ConstBytes peek();

  /// Gives the first `size` bytes back to the writer.
  void consume(std::size_t size);

  /// Whether the writer has ended the stream; then peek() shows all that is to come.
  bool ended() const { return memory_.control->ended.load(std::memory_order_acquire) != 0; }

  /// Whether the other end has written what cannot be: a cursor beyond the ring.
  bool garbled() const { return garbled_; }

 private:
  RingMemory memory_;
  std::uint64_t read_ = 0;
  bool garbled_ = false;
};

/// Looks at a ring from outside, from any thread of either end.
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
  /// The writer hears of the room now.
  void unblock_writer() { control_.writer_blocked.store(0, std::memory_order_relaxed); }

 private:
  RingControl& control_;
  std::size_t capacity_;
};

}  // namespace gradwire
