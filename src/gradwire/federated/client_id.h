#pragma once

#include <cstdint>

namespace gradwire::federated {

/// A client's number, from its enrolment.
using ClientId = std::int32_t;

}  // namespace gradwire::federated
