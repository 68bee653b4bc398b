#include "gradwire/net/shm/byte_ring.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "gradwire/base/check.h"

namespace gradwire {
namespace {

/// A system call for each page would cost more than the pages. A whole number of any system's
/// pages.
constexpr std::size_t kStep = 64 * 1024;

}  // namespace

std::size_t RingWriter::room() {
  return memory_.capacity - static_cast<std::size_t>(written_ - read_seen_);
}

std::size_t RingWriter::copy_in(ConstBytes bytes) {
  if (room() < bytes.size()) read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  const std::size_t taken = std::min(bytes.size(), room());
  if (written_ + taken > in_memory_) get_memory(written_ + taken);
  if (out_of_memory_) return 0;
  std::memcpy(memory_.data + written_ % memory_.capacity, bytes.data(), taken);
  written_ += taken;
  return taken;
}

/// On the first way round the ring.
void RingWriter::get_memory(std::uint64_t until) {
  const auto from = static_cast<std::size_t>(in_memory_);
  const std::size_t steps = (static_cast<std::size_t>(until) - from + kStep - 1) / kStep;
  const std::size_t size = std::min(steps * kStep, memory_.capacity - from);
  // Kernels before 5.14 do not know of this (EINVAL), and give memory as it is touched.
  if (::madvise(memory_.data + from, size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    out_of_memory_ = true;
  }
  in_memory_ += size;
  if (in_memory_ == memory_.capacity) in_memory_ = kAll;
}

void RingWriter::publish() {
  published_ = written_;
  memory_.control->written.store(written_, std::memory_order_release);
}

bool RingWriter::block() {
  publish();
  memory_.control->writer_blocked.store(1, std::memory_order_relaxed);
  // Either we see the room that the reader made, or it sees that we are blocked.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  return room() > 0;
}

ConstBytes RingReader::peek() {
  const std::uint64_t written = memory_.control->written.load(std::memory_order_acquire);
  const auto size = static_cast<std::size_t>(written - read_);
  garbled_ = size > memory_.capacity;
  if (garbled_) return {};
  return {memory_.data + read_ % memory_.capacity, size};
}

void RingReader::consume(std::size_t size) {
  read_ += size;
  memory_.control->read.store(read_, std::memory_order_release);
}

}  // namespace gradwire
