#include "gradwire/net/shm/byte_ring.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "gradwire/base/check.h"

namespace gradwire::net {
namespace {

/// Maximum growth in one step. One system call per page would cost more than the pages.
constexpr std::size_t kMaxStep = 64 * 1024;

std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t RingWriter::room() const {
  return memory_.capacity - static_cast<std::size_t>(written_ - read_seen_);
}

std::size_t RingWriter::position() const {
  return static_cast<std::size_t>((written_ - origin_) & (memory_.capacity - 1));
}

std::size_t RingWriter::copy_in(ConstBytes bytes) {
  if (room() < bytes.size()) read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  const std::size_t taken = std::min(bytes.size(), room());
  if (in_memory_ != kAll && position() + taken > in_memory_) get_memory(taken);
  if (out_of_memory_) return 0;
  std::memcpy(memory_.data + position(), bytes.data(), taken);
  written_ += taken;
  return taken;
}

/// Provides memory for `size` more bytes.
void RingWriter::get_memory(std::size_t size) {
  read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  if (read_seen_ == written_) {
    origin_ = written_;
    // Published with the next bytes.
    memory_.control->origin.store(origin_, std::memory_order_relaxed);
    if (size <= in_memory_) return;
  }
  const std::size_t step = std::max(position() + size - in_memory_,  // The bytes needed, or double.
                                    std::min(in_memory_, kMaxStep));
  const std::size_t more = std::min(round_up(step, page_bytes()), memory_.capacity - in_memory_);
  // Kernels before 5.14 do not support this (EINVAL); they allocate memory on first access.
  if (::madvise(memory_.data + in_memory_, more, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    out_of_memory_ = true;
  }
  in_memory_ += more;
  if (in_memory_ == memory_.capacity) in_memory_ = kAll;
}

void RingWriter::publish() {
  published_ = written_;
  memory_.control->written.store(written_, std::memory_order_release);
}

bool RingWriter::block() {
  publish();
  memory_.control->writer_blocked.store(1, std::memory_order_relaxed);
  // Either this end sees the room that the reader made, or the reader sees writer_blocked.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  return room() > 0;
}

ConstBytes RingReader::peek() {
  const std::uint64_t written = memory_.control->written.load(std::memory_order_acquire);
  const auto size = static_cast<std::size_t>(written - read_);
  corrupt_ = size > memory_.capacity;
  if (corrupt_) return {};
  const std::uint64_t origin = memory_.control->origin.load(std::memory_order_relaxed);
  return {memory_.data + ((read_ - origin) & (memory_.capacity - 1)), size};
}

void RingReader::consume(std::size_t size) {
  read_ += size;
  memory_.control->read.store(read_, std::memory_order_release);
}

}  // namespace gradwire::net
