#pragma once

namespace gradwire::test {

/// Main functions of processes of a job, by the first argument of `train_rank`. Their files say
/// which other arguments they have.
int limited_rank(int argc, char** argv);
int option_rank(int argc, char** argv);
int pipeline_rank(int argc, char** argv);
int proof_rank(int argc, char** argv);

}  // namespace gradwire::test
