#pragma once

#include <string>

#include "gradwire/cli/doctor/facts.h"

namespace gradwire {

/// Adds to `facts` what else of gradwire is installed here and what it would run with: the program
/// that needs libtorch, and python3's package. Starts both; takes about a second, at most a few.
void look_at_installed(HostFacts& facts);

/// A checksum of a file; empty if there is none.
std::string checksum_of(const std::string& path);

}  // namespace gradwire
