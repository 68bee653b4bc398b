#pragma once

namespace gradwire {

/// `gradwire plan place`: searches degrees of tensor, pipeline and data parallelism. argv[0] is
/// "place".
int plan_place_command(int argc, char** argv);

}  // namespace gradwire
