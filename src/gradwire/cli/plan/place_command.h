#pragma once

namespace gradwire {

/// `gradwire plan place`: which devices share layers, are stages and replicas. argv[0] is "place".
int plan_place_command(int argc, char** argv);

}  // namespace gradwire
