#pragma once

#include <chrono>
#include <cstddef>

#include "gradwire/base/types.h"

/// The fitted constants of the time model: what no formula gives, with its unit and the measurement
/// from which it comes. "The grid" is `make calibration` (docs/accuracy.md): two to eight hosts as
/// network namespaces on two processors, links of 250 Mb/s to 2.5 Gb/s, TCP. After a change of a
/// constant, `bench/calibration.py --reprice` compares predictions with the recorded measurements.
namespace gradwire::schedule::fitted {

/// Processor time of a segment at each end of a message between hosts, and between ranks of one
/// host. The executor over TCP and over shared memory, `gradwire bench`, two cores, 2026-11.
inline constexpr Duration kSegmentTime = std::chrono::microseconds(8);
inline constexpr Duration kSegmentTimeInside = std::chrono::nanoseconds(500);

/// Bytes per second of reading, verifying and reducing received float32 on one core. The executor,
/// as above.
inline constexpr double kReduceRate = 3e9;

/// Incast: several ranks that send to one rank at the same time share its receive window, and lose
/// a share of its port's rate with each stream beyond two. Where ranks only collect and distribute
/// (two hops), they lose little: the grid, 2026-11, direct exchanges of four to eight hosts.
inline constexpr double kIncastDirect = 0.015;
/// Where ranks forward data, the streams delay those on the critical path: the grid, 2026-11,
/// double trees of four hosts.
inline constexpr double kIncastForwarding = 0.065;
/// Streams beyond this number do not lose more. Assumed: the grid ends at seven.
inline constexpr std::size_t kIncastMaxStreams = 8;
/// Share lost through shared memory, where concurrent senders evict each other's messages from the
/// caches, and the shortest message that they evict. Four and eight ranks on two cores, 2026-11:
/// with messages of 2 MiB and more direct takes 1.1 to 1.5 times as long as ring, with 1 MiB and
/// less at most as long. The value makes the tuner choose ring from 2 MiB on.
inline constexpr double kIncastInside = 0.3;
inline constexpr double kIncastInsideBytes = 2 << 20;

/// Share of a device's peak that matrix products reach in training: half, by the rule of the
/// cluster article (8 A100 at 50 % of 300 TFLOP/s). Moving activations through memory comes on top.
inline constexpr double kMatrixShare = 0.5;
/// Share of a device's memory bandwidth that kernels outside of matrix products reach. Fitted to
/// published throughputs of ResNet-50 and GPT-2 on one A100 (tests/plan/step_time_test.cpp).
inline constexpr double kMemoryShare = 0.8;

/// Shares of an Ethernet link's rate that carry payload. TCP with packets of 1500 bytes and time
/// stamps: 1448 of 1538 bytes; computed.
inline constexpr double kTcpShare = 0.9415;
/// Above 25 Gb/s one or two cores cannot fill the link with TCP (bench/RESULTS.md).
inline constexpr double kFastTcpShare = 0.85;
/// RDMA: 42 of 50 GB/s over four cards of 100 Gb/s, in the case study (docs/plan.md).
inline constexpr double kRdmaShare = 0.84;
/// Rate that each further network card adds, in cards: striping has overhead. The case study's two
/// cards raised the efficiency from 89.8 to 94.5 %; twice the rate would give 94.6 %.
inline constexpr double kFurtherCard = 0.95;

}  // namespace gradwire::schedule::fitted
