#pragma once

#include <string>

#include "gradwire/cli/doctor/facts.h"

namespace gradwire {

/// Adds to `facts` the versions of the program that needs libtorch and of python3's package. Runs
/// both; takes about a second, at most a few.
void look_at_installed(HostFacts& facts);

/// Returns the CRC-32C of a file in hexadecimal; empty if it cannot be read.
std::string checksum_of(const std::string& path);

}  // namespace gradwire
