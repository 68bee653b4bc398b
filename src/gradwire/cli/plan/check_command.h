#pragma once

namespace gradwire {

/// `gradwire plan --check RUN`: a prediction beside what a run measured. Options are those of
/// `gradwire plan simulate`; what the run itself says counts where they are left out. argv[0] is a
/// word for messages.
int plan_check_command(int argc, char** argv);

}  // namespace gradwire
