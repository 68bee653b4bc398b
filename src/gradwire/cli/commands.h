#pragma once

#include <functional>
#include <memory>

#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/store/store.h"

/// The commands of `gradwire` and `gradwire-torch`. argv[0] is the command's name. They return the
/// exit status: 0, 1 for an error, 2 for a wrong command line. main() handles their exceptions.
namespace gradwire::cli {

// gradwire
int run_command(int argc, char** argv);         ///< run_command.cpp
int bench_command(int argc, char** argv);       ///< bench_command.cpp
int report_command(int argc, char** argv);      ///< report_command.cpp
int plan_command(int argc, char** argv);        ///< plan_command.cpp
int schedule_command(int argc, char** argv);    ///< schedule_command.cpp
int probe_command(int argc, char** argv);       ///< probe_command.cpp
int tune_command(int argc, char** argv);        ///< tune_command.cpp
int doctor_command(int argc, char** argv);      ///< doctor_command.cpp
int env_command(int argc, char** argv);         ///< env_command.cpp
int federate_command(int argc, char** argv);    ///< federate_command.cpp
int checkpoint_command(int argc, char** argv);  ///< checkpoint_command.cpp

// gradwire-torch
int train_command(int argc, char** argv);        ///< train_command.cpp
int generate_command(int argc, char** argv);     ///< torch_generate_command.cpp
int torch_bench_command(int argc, char** argv);  ///< torch_bench.cpp
/// `gradwire federate` with subcommands that need libtorch; argv[0] is "federate".
int torch_federate_command(int argc, char** argv);
/// argv[0] is the subcommand.
int federate_simulate_command(int argc, char** argv);
int federate_serve_command(int argc, char** argv);
int federate_client_command(int argc, char** argv);

/// `gradwire schedule` of a pipeline. Returns true if the arguments, of which the first is skipped,
/// are for it: they name a pipeline schedule, or have one of its options.
bool is_pipeline(int argc, char** argv);
int pipeline_command(int argc, char** argv);  ///< pipeline_command.cpp

/// `gradwire bench codec`: measures speed and error of codecs. argv[0] is "codec"; returns the exit
/// status.
int bench_codec_command(int argc, char** argv);

/// `gradwire plan --check RUN`: compares a prediction with a measured run. Options are those of
/// `gradwire plan simulate`; defaults come from the run. argv[0] is a name for messages.
int plan_check_command(int argc, char** argv);

/// `gradwire plan place`: searches degrees of tensor, pipeline and data parallelism. argv[0] is
/// "place".
int plan_place_command(int argc, char** argv);

/// `gradwire plan simulate`: a step, or one operation, in virtual time. argv[0] is "simulate".
int plan_simulate_command(int argc, char** argv);

/// Opens the launcher's store of a job; returns null if the job uses gradwire's own.
using StoreOpener = std::function<std::shared_ptr<bootstrap::Store>(const bootstrap::Job&)>;

/// `gradwire bench`, with the store of `open_store` for the rendezvous.
int bench_with_store(int argc, char** argv, const StoreOpener& open_store);

/// `gradwire bench step` (bench_step_command.cpp); argv[0] is "step".
int bench_step_with_store(int argc, char** argv, const StoreOpener& open_store);

/// `gradwire bench pipeline` (bench_pipeline_command.cpp); argv[0] is "pipeline".
int bench_pipeline_with_store(int argc, char** argv, const StoreOpener& open_store);

}  // namespace gradwire::cli
