#include <memory>

#include "gradwire/net/frame.h"
#include "tests/fuzz/frames.h"
#include "tests/fuzz/target.h"

/// Planted bugs, each of which the driver must find (test_driver.py). They are behind a checksum.
namespace gradwire::fuzz {

std::vector<std::string> seeds() {
  FrameStream stream;
  stream.add({.type = net::FrameType::ping, .channel = 1000, .message = 1000}, "");
  return {stream.text()};
}

void repair(std::string& input) {
  seal_frames(input, 0);
}

namespace {

/// Keeps the compiler from removing the reads.
volatile std::size_t sink = 0;

void read_beyond_the_end(ConstBytes bytes) {
  const std::unique_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  sink = static_cast<std::size_t>(copy[bytes.size()]);
}

void believe_a_length() {
  const std::vector<std::byte> room(100'000'000);
  sink = room.size();
}

void spin() {
  while (sink + 1 != 0) sink = 1;
}

}  // namespace

void test(std::string_view input) {
  if (input.size() < net::kFrameHeaderBytes) return;
  const ConstBytes bytes = bytes_of(input);
  const Result<net::FrameHeader> header = net::decode(bytes.first<net::kFrameHeaderBytes>());
  if (!header || header->channel >= 1000) return;
  if (header->message == 999) read_beyond_the_end(bytes);
  if (header->message == 1001) believe_a_length();
  if (header->message == 1002) spin();
  expect(header->message != 1003, "message 1003 does not come");
}

}  // namespace gradwire::fuzz
