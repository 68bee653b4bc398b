#pragma once

/// The commands of `gradwire` and `gradwire-torch`. argv[0] is the command's name. They return the
/// exit status: 0, 1 for an error, 2 for a wrong command line. main() handles their exceptions.
namespace gradwire {

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
int checkpoint_command(int argc, char** argv);  ///< checkpoint_command.cpp

// gradwire-torch
int train_command(int argc, char** argv);        ///< train_command.cpp
int torch_bench_command(int argc, char** argv);  ///< torch_bench.cpp

}  // namespace gradwire
