#pragma once

#include "gradwire/base/log_normal.h"

namespace gradwire::federated {

/// The devices of a simulation.
struct DeviceModel {
  LogNormal compute{10, 0.5};  ///< Seconds of the local work of a client with the mean number of
                               ///< samples. Drawn once for each client.
  LogNormal up{6e5, 0.5};      ///< Bytes per second. Drawn once for each client.
  LogNormal down{2.5e6, 0.5};  ///< The same.
  double eligible = 1;         ///< Share of the clients that check in to a round.
  double drop = 0;             ///< Share of the asked clients that vanish during a round.
  double stragglers = 0;       ///< Share of the asked clients that do a part of the local epochs.
};

}  // namespace gradwire::federated
