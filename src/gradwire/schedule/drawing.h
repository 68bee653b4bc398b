#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/schedule/cost.h"
#include "gradwire/schedule/schedule.h"

/// Space-time diagrams of collectives: ranks side by side, time downwards.
namespace gradwire {

/// One op as it happened, in an estimate, a simulation or a measured run alike.
struct TimedEvent {
  Rank rank = 0;
  OpIndex op = 0;
  OpKind kind = OpKind::copy;
  Rank peer = -1;           ///< Of sends and receives; -1 for local ops.
  std::uint32_t chunk = 0;  ///< The chunk of the data that it is about: its colour.
  Duration begin = Duration::zero();
  Duration end = Duration::zero();
  std::string label;      ///< A few characters: "c2>3".
  bool critical = false;  ///< On the critical path: drawn bold.
};

/// What is drawn. The k-th send of a rank to another, in the order of their ops, belongs to the
/// k-th receive of that one.
struct Drawing {
  std::string title;
  int ranks = 1;
  std::uint32_t chunks = 1;
  std::vector<TimedEvent> events;
};

/// When the ops of all ranks took place, by rank and op.
using OpIntervals = std::vector<std::vector<Interval>>;

/// What to draw of a schedule that takes place as estimated.
Drawing drawing_of(const ScheduleCost& cost, const Estimate& estimate);

/// The same of one that took place, in a simulation or for real. `how` goes into the title:
/// "simulated".
Drawing drawing_of(const ProgramSet& programs, const OpIntervals& ops, std::string_view how);

/// An op in a few characters: "c2>3" sends chunk 2 to rank 3, "c2<1" receives it from rank 1,
/// "c2<+1" adds what comes, "c2+" reduces, "c2=" copies; "c0-4" are several chunks.
std::string label_of(const Schedule& schedule, const Program& program, Rank rank, const Op& op);

/// A table for terminals: a column a rank, a row for every time at which anything arrives, is
/// computed, or starts to be sent.
std::string draw_text(const Drawing& drawing);

/// A picture: arrows from rank to rank, coloured by chunk, show how the last byte of each message
/// travels, dashes how the first does. Beside a rank's line stands what it sends (on the right) and
/// receives (on the left), strong where that is on the critical path; on the line what it computes.
/// Stands alone: no scripts, fonts or images from elsewhere.
std::string draw_svg(const Drawing& drawing);

}  // namespace gradwire
