#pragma once

#include "gradwire/engine/links/peer.h"
#include "gradwire/engine/operations/in_flight_table.h"
#include "gradwire/net/transport.h"

namespace gradwire::engine {

/// Tells the transport, before this rank sleeps, how many bytes of each peer are worth a wake-up,
/// and which share of the last switch's queue the peer may fill (incast control). Both follow from
/// the bytes that the operations in flight still miss.
void expect_bytes(const Peers& peers, const InFlightTable& in_flight, net::Transport& transport);

}  // namespace gradwire::engine
