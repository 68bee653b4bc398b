#include "gradwire/net/shm/byte_ring.h"

#include <algorithm>
#include <cstring>

#include "gradwire/base/check.h"

namespace gradwire {
std::size_t RingWriter::room() {
  return memory_.capacity - static_cast<std::size_t>(written_ - read_seen_);
}

std::size_t RingWriter::copy_in(ConstBytes bytes) {
  if (room() < bytes.size()) read_seen_ = memory_.control->read.load(std::memory_order_acquire);
  const std::size_t taken = std::min(bytes.size(), room());
  std::memcpy(memory_.data + written_ % memory_.capacity, bytes.data(), taken);
  written_ += taken;
  return taken;
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
