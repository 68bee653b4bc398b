#pragma once

#include <string>

#include "gradwire/base/clock.h"

namespace gradwire {

/// What happened to the connection to `name`, as a sentence for people, by the kernel's error
/// number; 0 stands for the peer's orderly end of stream. `dead_after` as for tune_stream().
std::string words_of_broken(int cause, const std::string& name, Duration dead_after);

}  // namespace gradwire
