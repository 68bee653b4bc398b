#pragma once

namespace gradwire {

/// `gradwire plan --check RUN`: compares a prediction with a measured run. Options are those of
/// `gradwire plan simulate`; defaults come from the run. argv[0] is a name for messages.
int plan_check_command(int argc, char** argv);

}  // namespace gradwire
