#pragma once

#include "gradwire/schedule/cost/cost.h"
#include "gradwire/schedule/cost/link_model.h"
#include "gradwire/schedule/cost/message_graph.h"

namespace gradwire {

/// Sets OpLoad::incast of the receives of ranks to which several others send. Between hosts their
/// streams share the rank's receive window, inside a host they share caches. A rank with no more
/// senders than the partners of a butterfly, ceil(log2 `ranks`), is not slowed, because a
/// butterfly's partners send one after the other. `ranks`: of the schedule, all of which the graph
/// may not have.
void add_incast(const MessageGraph& graph, int ranks, const IncastCosts& costs, LinkMap& links);

}  // namespace gradwire
