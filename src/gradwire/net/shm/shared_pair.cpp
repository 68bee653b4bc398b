#include "gradwire/net/shm/shared_pair.h"

#include <array>
#include <bit>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gradwire/base/check.h"

namespace gradwire::net {

struct SharedPair::Head {
  struct alignas(kCacheLine) Flag {
    std::atomic<std::uint32_t> set;
  };
  std::array<RingControl, 2> rings;
  std::array<Flag, 2> asleep;
};

namespace {

/// The head has its own page before the rings.
std::size_t file_bytes(std::size_t ring_bytes) {
  return page_bytes() + 2 * ring_bytes;
}

bool is_of_size(const Socket& descriptor, std::size_t bytes) {
  struct stat status = {};
  return ::fstat(descriptor.descriptor(), &status) == 0 &&
         static_cast<std::size_t>(status.st_size) == bytes;
}

}  // namespace

void UnmapMemory::operator()(std::byte* at) const {
  ::munmap(at, size);
}

Result<SharedPair> SharedPair::make(std::size_t ring_bytes) {
  GRADWIRE_CHECK(std::has_single_bit(ring_bytes) && ring_bytes >= page_bytes());
  Socket descriptor(::memfd_create("gradwire", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return system_failure("cannot make shared memory");
  const auto size = static_cast<off_t>(file_bytes(ring_bytes));
  if (::ftruncate(descriptor.descriptor(), size) != 0) {
    return system_failure("cannot get shared memory");
  }
  const auto head = static_cast<off_t>(page_bytes());
  const int cause = ::posix_fallocate(descriptor.descriptor(), 0, head);
  if (cause != 0) return system_failure("cannot get shared memory", cause);
  ::fcntl(descriptor.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return map(std::move(descriptor), ring_bytes, End::maker);
}

Result<SharedPair> SharedPair::take(Socket descriptor, std::size_t ring_bytes) {
  if (!is_of_size(descriptor, file_bytes(ring_bytes))) {
    return failure(ErrorKind::corrupted, "shared memory has another size than agreed");
  }
  auto pair = map(std::move(descriptor), ring_bytes, End::taker);
  if (pair) pair->forget_descriptor();
  return pair;
}

/// Maps the head, then each ring twice. This reserves only addresses; memory is allocated on
/// writes.
Result<SharedPair> SharedPair::map(Socket descriptor, std::size_t ring_bytes, End end) {
  const std::size_t head_bytes = page_bytes();
  GRADWIRE_CHECK(sizeof(Head) <= head_bytes);
  const std::size_t total = head_bytes + 4 * ring_bytes;
  void* reserved = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return system_failure("cannot map shared memory");
  SharedPair pair;
  pair.memory_ = {static_cast<std::byte*>(reserved), UnmapMemory{total}};
  const auto put = [&](std::size_t at, std::size_t size, std::size_t offset) {
    return ::mmap(pair.memory_.get() + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                  descriptor.descriptor(), static_cast<off_t>(offset)) != MAP_FAILED;
  };
  bool all = put(0, head_bytes, 0);
  for (std::size_t copy = 0; copy < 4; ++copy) {
    all =
        all && put(head_bytes + copy * ring_bytes, ring_bytes, head_bytes + copy / 2 * ring_bytes);
  }
  if (!all) return system_failure("cannot map shared memory");
  pair.descriptor_ = std::move(descriptor);
  pair.ring_bytes_ = ring_bytes;
  pair.end_ = end;
  return pair;
}

SharedPair::Head& SharedPair::head() const {
  // The kernel's zeros are valid initial values of all fields.
  return *reinterpret_cast<Head*>(memory_.get());
}

RingMemory SharedPair::ring(std::size_t index) const {
  return {.control = &head().rings[index],
          .data = memory_.get() + page_bytes() + 2 * index * ring_bytes_,
          .capacity = ring_bytes_,
          .in_memory = false};
}

std::atomic<std::uint32_t>& SharedPair::sleeps(End end) const {
  return head().asleep[static_cast<std::size_t>(end)].set;
}

}  // namespace gradwire::net
