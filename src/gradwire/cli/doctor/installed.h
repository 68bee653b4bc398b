#pragma once

#include <string>

#include "gradwire/cli/doctor/host_report.h"

namespace gradwire {

/// Adds to `info` the versions of the program that needs libtorch and of python3's package. Runs
/// both; takes about a second, at most a few.
void read_installed_versions(HostInfo& info);

/// Returns the CRC-32C of a file in hexadecimal; empty if it cannot be read.
std::string checksum_of(const std::string& path);

}  // namespace gradwire
