#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire {

/// Quantities in the notation of the command line, parsed and formatted. All functions are pure.
/// Parsers fail with invalid_argument; the message shows the text and valid examples.

/// Bytes: "4", "64K", "1.5M", "1MiB", "100MB". K, M and G are powers of two, with or without "B" or
/// "iB", as in nccl-tests. A fraction must come out as whole bytes.
Result<std::size_t> parse_bytes(std::string_view text);

/// A duration: "50us", "1.5ms", "2s", "100ns", "0". Only zero may omit its unit.
Result<Duration> parse_duration(std::string_view text);

/// Bandwidth of a link, in bytes per second: "10Gb/s", "10Gbps", "2.5Gbit" count bits, "1.25GB/s"
/// counts bytes. K, M and G are powers of ten, as on the box of a network card.
Result<double> parse_rate(std::string_view text);

/// "4 B", "64 KiB", "95.4 MiB".
std::string format_bytes(std::size_t bytes);

/// "50 us", "1.25 ms", "2 s": four digits at most.
std::string format_duration(Duration duration);

/// "10 Gb/s", from bytes per second.
std::string format_rate(double bytes_per_second);

}  // namespace gradwire
