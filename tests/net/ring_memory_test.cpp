// Memory use of rings, and behavior when the machine has no memory left.

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gradwire/net/shm/neighbors.h"
#include "tests/net/ring_pair.h"

namespace gradwire::net {
namespace {

using test::await_bytes;
using test::Data;
using test::open_pair;
using test::PollingPair;
using test::random_data;
using test::to_peer_of;
using test::write;

/// Resident bytes of all rings of this process; each mapping counts (proc(5)).
std::size_t ring_bytes_in_memory() {
  std::ifstream file("/proc/self/smaps");
  std::size_t bytes = 0;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first.back() != ':') ours = line.find("/memfd:gradwire") != std::string::npos;
    std::size_t kilobytes = 0;
    if (ours && first == "Rss:" && words >> kilobytes) bytes += kilobytes * 1024;
  }
  return bytes;
}

/// Both ends are in this process.
constexpr std::size_t kMappings = 2;

void pass(PollingPair& pair, const Data& data) {
  ASSERT_EQ(write(pair.of(0), 0, data), data.size());
  ASSERT_TRUE(std::ranges::equal(await_bytes(pair.of(1), 1), data));
  pair.of(1).consume(to_peer_of(1), data.size());
}

TEST(RingMemory, IsTheMaximumOfUnreadBytes) {
  const std::size_t heads = kMappings * page_bytes();
  const auto pair = open_pair(1, true);
  EXPECT_LE(ring_bytes_in_memory(), heads);
  const Data little = random_data(1000);
  for (int i = 0; i < 10'000 && !HasFailure(); ++i) pass(*pair, little);
  EXPECT_LE(ring_bytes_in_memory(), heads + kMappings * page_bytes());
  const Data more = random_data(100'000);
  for (int i = 0; i < 100 && !HasFailure(); ++i) pass(*pair, more);
  EXPECT_GE(ring_bytes_in_memory(), more.size());
  EXPECT_LE(ring_bytes_in_memory(), heads + kMappings * 3 * more.size());
}

/// Some bytes are always unread, so that the ring grows while it is in use.
TEST(RingMemory, GrowsUnderWhatIsUnread) {
  const auto pair = open_pair(1, true);
  Random random(5);
  Data written;
  std::size_t read = 0;
  while (written.size() < 5 * ring_bytes_for(2)) {
    const Data data = random_data(1 + random.below(ring_bytes_for(2) / 8));
    const std::size_t taken = write(pair->of(0), 0, data);
    written.insert(written.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(taken));
    const ConstBytes there = await_bytes(pair->of(1), 1);
    ASSERT_TRUE(std::ranges::equal(there, ConstBytes(written).subspan(read)));
    const std::size_t some = taken < data.size() ? there.size() / 2 : random.below(there.size());
    pair->of(1).consume(to_peer_of(1), some);
    read += some;
  }
  EXPECT_GE(ring_bytes_in_memory(), ring_bytes_for(2));
}

/// Beyond the end of a file the kernel has no memory: a write there is a SIGBUS.
TEST(RingMemory, OutOfMemoryIsAnErrorAndNoSignal) {
  const std::size_t capacity = 4 * 64 * 1024;
  const Socket file(::memfd_create("gradwire-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.descriptor(), static_cast<off_t>(capacity / 2)), 0);
  void* const data =
      ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  ASSERT_NE(data, MAP_FAILED);
  RingControl control{};
  RingWriter writer({.control = &control,
                     .data = static_cast<std::byte*>(data),
                     .capacity = capacity,
                     .in_memory = false});
  const Data bytes = random_data(capacity / 2);
  EXPECT_EQ(writer.copy_in(bytes), bytes.size());
  EXPECT_FALSE(writer.out_of_memory());
  EXPECT_EQ(writer.copy_in(ConstBytes(bytes).first(1)), 0u);
  EXPECT_TRUE(writer.out_of_memory());
  ::munmap(data, capacity);
}

}  // namespace
}  // namespace gradwire::net
