#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/schedule.h"

/// Space-time diagrams of collectives: one column per rank, time runs downwards.
namespace gradwire::schedule {

/// One op and its times, from an estimate, a simulation or a measured run.
struct TimedEvent {
  Rank rank = 0;
  OpIndex op = 0;
  OpKind kind = OpKind::copy;
  Rank peer = -1;           ///< Peer of a send or receive; -1 for local ops.
  std::uint32_t chunk = 0;  ///< First data chunk of the op: selects the color.
  Duration begin = Duration::zero();
  Duration end = Duration::zero();
  std::string label;      ///< Short text, such as "c2>3".
  bool critical = false;  ///< On the critical path: drawn bold.
};

/// Input of the renderers. The k-th send of rank a to rank b, in op order, matches the k-th receive
/// of b from a.
struct Drawing {
  std::string title;
  int ranks = 1;
  std::uint32_t chunks = 1;
  std::vector<TimedEvent> events;
};

/// Times of all ranks' ops, by rank and op.
using OpIntervals = std::vector<std::vector<Interval>>;

/// Returns the drawing of a schedule that runs as estimated.
Drawing drawing_of(const ScheduleCost& cost, const Estimate& estimate);

/// Returns the drawing of a schedule that was executed, simulated or not. `how` becomes part of the
/// title, such as "simulated".
Drawing drawing_of(const ProgramSet& programs, const OpIntervals& ops, std::string_view how);

/// Short label of an op: "c2>3" sends chunk 2 to rank 3, "c2<1" receives it from rank 1, "c2<+1"
/// receives and reduces it, "c2+" reduces, "c2=" copies; "c0-4" covers several chunks.
std::string label_of(const Schedule& schedule, const Program& program, Rank rank, const Op& op);

/// Renders a table for terminals: one column per rank, and one row per time at which data arrives,
/// is computed, or starts to be sent.
std::string draw_text(const Drawing& drawing);

/// Renders a standalone SVG: no scripts, external fonts or images. Arrows between ranks, colored by
/// chunk, show the path of each message's last byte; dashed lines show that of its first byte.
/// Beside a rank's line stand its sends (right) and receives (left), opaque on the critical path;
/// on the line stand its local ops.
std::string draw_svg(const Drawing& drawing);

}  // namespace gradwire::schedule
