#pragma once

namespace gradwire {

/// `gradwire plan simulate`: a step, or one operation, in virtual time. argv[0] is "simulate".
int plan_simulate_command(int argc, char** argv);

}  // namespace gradwire
