#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/net/frame.h"

namespace gradwire::fuzz {

/// Frames as a peer would send them over one stream.
class FrameStream {
 public:
  void add(net::FrameHeader header, std::string_view payload);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::uint64_t frames_ = 0;
};

/// Turns arbitrary bytes into consecutive frames with valid magic, version, number (from `first`),
/// checksums and length. Returns the number after the last frame.
std::uint64_t seal_frames(std::span<char> stream, std::uint64_t first);

}  // namespace gradwire::fuzz
