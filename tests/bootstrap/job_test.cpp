#include "gradwire/bootstrap/job.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "gradwire/base/error.h"
#include "gradwire/bootstrap/launchers.h"
#include "tests/bootstrap/environments.h"

namespace gradwire::bootstrap {
namespace {

using test::job_of;
using test::Variables;
using test::with;
using test::without;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const Variables& variables) {
  try {
    job_of(variables);
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
    return e.what();
  }
  return "no error";
}

const Variables kTorchrun{{"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "0"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "a"},
                          {"MASTER_PORT", "29500"},
                          {"GRADWIRE_SECRET", "shared"}};

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "2057502721"},    {"GRADWIRE_SECRET", "shared"}};

const Variables kHydra{{"PMI_RANK", "3"},
                       {"PMI_SIZE", "4"},
                       {"MPI_LOCALRANKID", "1"},
                       {"MPI_LOCALNRANKS", "2"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "1234"},
                       {"GRADWIRE_SECRET", "shared"}};

const Variables kSlurm{{"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "6"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "n[01-03]"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                       {"SLURM_JOB_ID", "4711"},
                       {"GRADWIRE_SECRET", "shared"}};

TEST(JobTest, NoLauncherIsAWorldOfOne) {
  const Job job = job_of({});
  EXPECT_EQ(job.rank, 0);
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.local_world_size, 1);
  EXPECT_EQ(job.master_port, 0);
  EXPECT_EQ(job.secret, "");
  EXPECT_EQ(job.launcher, "none");
}

TEST(JobTest, GradwireRun) {
  const Job job = job_of(with(kTorchrun, {{"GRADWIRE_INTERFACE", "eth0,ib"}}));
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.world_size, 4);
  EXPECT_EQ(job.local_rank, 0);
  EXPECT_EQ(job.local_world_size, 2);
  EXPECT_EQ(job.master_address, "a");
  EXPECT_EQ(job.master_port, 29500);
  EXPECT_EQ(job.interface, "eth0,ib");
  EXPECT_EQ(job.secret, "shared");
  EXPECT_FALSE(job.launcher_store);
  EXPECT_EQ(job.launcher, "gradwire");
}

TEST(JobTest, TorchrunListensOnTheMasterPortItselfAndNeedsNoSecret) {
  const Job job = job_of(without(
      with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
      "GRADWIRE_SECRET"));
  EXPECT_TRUE(job.launcher_store);
  EXPECT_EQ(job.launcher, "torchrun");
  EXPECT_EQ(job.secret, "");
}

TEST(JobTest, TorchrunWithoutItsStoreNeedsASecret) {
  const Variables variables =
      with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  EXPECT_FALSE(job_of(variables).launcher_store);
  EXPECT_THAT(error_of(without(variables, "GRADWIRE_SECRET")), HasSubstr("openssl rand -hex 32"));
}

TEST(JobTest, RanksStartedByHandOnLoopbackAreAllOnThisHost) {
  const Job job = job_of({{"RANK", "1"},
                          {"WORLD_SIZE", "3"},
                          {"MASTER_ADDR", "localhost"},
                          {"MASTER_PORT", "1"},
                          {"GRADWIRE_SECRET", "s"}});
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 3);
}

TEST(JobTest, AWorldOfOneNeedsNeitherMasterNorSecret) {
  const Job job = job_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(job.world_size, 1);
  EXPECT_EQ(job.secret, "");
}

TEST(JobTest, OpenMpiOnOneHostNeedsNothingElse) {
  const Job job = job_of(kOpenMpi);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.world_size, 2);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 2);
  EXPECT_EQ(job.master_address, "127.0.0.1");
  EXPECT_EQ(job.master_port, port_from_job_id("2057502721"));
  EXPECT_EQ(job.launcher, "mpirun");
}

TEST(JobTest, OpenMpiNamesItsJobInTwoWays) {
  const Variables older =
      with(without(kOpenMpi, "PMIX_NAMESPACE"), {{"OMPI_MCA_ess_base_jobid", "2057502721"}});
  EXPECT_EQ(job_of(older).master_port, job_of(kOpenMpi).master_port);
}

TEST(JobTest, OpenMpiAcrossHostsAsksForTheMaster) {
  const Variables across =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_THAT(error_of(across), HasSubstr("mpirun -x MASTER_ADDR=..."));
  EXPECT_EQ(job_of(with(across, {{"MASTER_ADDR", "a"}})).master_address, "a");
}

TEST(JobTest, Hydra) {
  const Job job = job_of(kHydra);
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 2);
  EXPECT_EQ(job.launcher, "mpirun");
  EXPECT_THAT(error_of(without(kHydra, "MASTER_PORT")), HasSubstr("mpirun -genv MASTER_PORT"));
}

TEST(JobTest, Slurm) {
  const Job job = job_of(kSlurm);
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.world_size, 6);
  EXPECT_EQ(job.local_rank, 1);
  EXPECT_EQ(job.local_world_size, 2);
  EXPECT_EQ(job.master_address, "n01");
  EXPECT_EQ(job.master_port, port_from_job_id("4711.0"));
  EXPECT_EQ(job.launcher, "slurm");
}

TEST(JobTest, SlurmAcrossHostsNeedsASecret) {
  EXPECT_THAT(error_of(without(kSlurm, "GRADWIRE_SECRET")),
              AllOf(HasSubstr("GRADWIRE_SECRET=$(openssl rand -hex 32)"), HasSubstr("n01")));
}

TEST(JobTest, SlurmOnOneNodeUsesLoopback) {
  const Job job = job_of({{"SLURM_PROCID", "1"},
                          {"SLURM_NTASKS", "2"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_NODELIST", "n07"},
                          {"SLURM_JOB_ID", "1"},
                          {"GRADWIRE_SECRET", "s"}});
  EXPECT_EQ(job.master_address, "127.0.0.1");
  EXPECT_EQ(job.local_world_size, 2);
}

TEST(JobTest, ABatchScriptOrAllocationShellIsNotARank) {
  const Variables batch = without(
      with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"ENVIRONMENT", "BATCH"}}),
      "SLURM_STEP_ID");
  EXPECT_EQ(job_of(batch).launcher, "none");
  EXPECT_EQ(job_of(batch).world_size, 1);
  EXPECT_EQ(job_of(without(kSlurm, "SLURM_PROCID")).world_size, 1);
  // The interactive step of newer versions has its own task.
  const Variables interactive =
      with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(job_of(interactive).world_size, 1);
}

TEST(JobTest, TheInnermostLauncherCounts) {
  const Variables mpirun_in_allocation = with(kSlurm, kOpenMpi);
  EXPECT_EQ(job_of(mpirun_in_allocation).launcher, "mpirun");
  EXPECT_EQ(job_of(with(mpirun_in_allocation, kTorchrun)).launcher, "gradwire");
  // With srun, PMI and Slurm variables agree; with helpers of mpirun they differ.
  EXPECT_EQ(job_of(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}})).launcher, "slurm");
  EXPECT_EQ(job_of(with(kSlurm, kHydra)).launcher, "mpirun");
}

TEST(JobTest, ExplicitMasterWinsUnderEveryLauncher) {
  for (const Variables& variables : {kTorchrun, kOpenMpi, kHydra, kSlurm}) {
    const Job job = job_of(with(variables, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "7"}}));
    EXPECT_EQ(job.master_address, "b");
    EXPECT_EQ(job.master_port, 7);
  }
}

struct Wrong {
  Variables variables;
  std::vector<std::string> said;
};

TEST(JobTest, OnePortServesTheMasterTooUnlessThatHasItsOwn) {
  const Job job = job_of(without(with(kTorchrun, {{"GRADWIRE_PORT", "4321"}}), "MASTER_PORT"));
  EXPECT_EQ(job.port, 4321);
  EXPECT_EQ(job.master_port, 4321);
  EXPECT_EQ(job_of(with(kTorchrun, {{"GRADWIRE_PORT", "4321"}})).master_port, 29500);
  EXPECT_EQ(job_of(with(kOpenMpi, {{"GRADWIRE_PORT", "4321"}})).master_port, 4321);
  EXPECT_EQ(job_of(kTorchrun).port, 0);
  EXPECT_THAT(error_of(with(kTorchrun, {{"GRADWIRE_PORT", "0"}})),
              AllOf(HasSubstr("GRADWIRE_PORT=\"0\""), HasSubstr("from 1 to 65535")));
}

TEST(JobTest, SharedMemoryCanBeForbidden) {
  EXPECT_TRUE(job_of(kTorchrun).shared_memory);
  EXPECT_FALSE(job_of(with(kTorchrun, {{"GRADWIRE_SHARED_MEMORY", "0"}})).shared_memory);
  EXPECT_THAT(error_of(with(kTorchrun, {{"GRADWIRE_SHARED_MEMORY", "no"}})),
              HasSubstr("GRADWIRE_SHARED_MEMORY=\"no\""));
}

TEST(JobTest, EncryptionIsAskedFor) {
  EXPECT_FALSE(job_of(kTorchrun).encryption);
  EXPECT_TRUE(job_of(with(kTorchrun, {{"GRADWIRE_ENCRYPTION", "on"}})).encryption);
  EXPECT_FALSE(job_of(with(kTorchrun, {{"GRADWIRE_ENCRYPTION", "off"}})).encryption);
  EXPECT_THAT(error_of(with(kTorchrun, {{"GRADWIRE_ENCRYPTION", "1"}})),
              AllOf(HasSubstr("GRADWIRE_ENCRYPTION=\"1\""), HasSubstr("on or off")));
}

TEST(JobTest, ErrorsNameVariableValueAndExpectation) {
  const std::vector<Wrong> cases = {
      {with(kTorchrun, {{"RANK", "4"}}), {"RANK=\"4\"", "0 to 3", "WORLD_SIZE=4"}},
      {with(kTorchrun, {{"RANK", "-1"}}), {"RANK=\"-1\"", "0 to 3"}},
      {with(kTorchrun, {{"RANK", "two"}}), {"RANK=\"two\"", "whole number"}},
      {with(kTorchrun, {{"RANK", ""}}), {"RANK=\"\"", "whole number"}},
      {with(kTorchrun, {{"RANK", "1x"}}), {"RANK=\"1x\""}},
      {with(kTorchrun, {{"RANK", "99999999999"}}), {"RANK=\"99999999999\""}},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=\"0\"", "1 to 4096"}},
      {with(kTorchrun, {{"WORLD_SIZE", "4097"}}), {"WORLD_SIZE=\"4097\"", "1 to 4096"}},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=\"2\"", "LOCAL_WORLD_SIZE=2"}},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}), {"LOCAL_WORLD_SIZE=\"5\"", "WORLD_SIZE=4"}},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT=\"65536\"", "1 to 65535"}},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), {"MASTER_PORT=\"0\""}},
      {with(kTorchrun, {{"GRADWIRE_SECRET", ""}}), {"GRADWIRE_SECRET=\"\"", "openssl"}},
      {without(kTorchrun, "RANK"), {"RANK is not set", "WORLD_SIZE is set"}},
      {without(kTorchrun, "WORLD_SIZE"), {"WORLD_SIZE is not set", "RANK is set"}},
      {without(kTorchrun, "LOCAL_RANK"), {"LOCAL_RANK is not set", "LOCAL_WORLD_SIZE"}},
      {without(kTorchrun, "MASTER_ADDR"), {"MASTER_ADDR is not set"}},
      {without(kTorchrun, "MASTER_PORT"), {"MASTER_PORT is not set"}},
      {without(kTorchrun, "GRADWIRE_SECRET"), {"GRADWIRE_SECRET", "openssl rand -hex 32"}},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), {"OMPI_COMM_WORLD_RANK=\"2\"", "0 to 1"}},
      {without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_SIZE is not set"}},
      {without(kHydra, "PMI_RANK"), {"PMI_RANK is not set"}},
      {with(kSlurm, {{"SLURM_PROCID", "6"}}), {"SLURM_PROCID=\"6\"", "SLURM_NTASKS=6"}},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "n[01"}}), {"n[01", "MASTER_ADDR"}},
  };
  for (const Wrong& wrong : cases) {
    const std::string error = error_of(wrong.variables);
    for (const std::string& part : wrong.said) EXPECT_THAT(error, HasSubstr(part));
  }
}

TEST(SlurmTest, FirstHost) {
  EXPECT_EQ(first_slurm_host("n1"), "n1");
  EXPECT_EQ(first_slurm_host("n1,n2"), "n1");
  EXPECT_EQ(first_slurm_host("n[01-03,7],m2"), "n01");
  EXPECT_EQ(first_slurm_host("m2,n[01-03,7]"), "m2");
  EXPECT_EQ(first_slurm_host("n[7,1-3].cluster"), "n7.cluster");
  EXPECT_EQ(first_slurm_host("rack[0-1]node[10-20]"), "rack0node10");
  for (const char* bad : {"", "n[", "n[]", "n[a-b]", "n]1[", ",a", "[1"}) {
    EXPECT_THROW(first_slurm_host(bad), Exception) << bad;
  }
}

TEST(SlurmTest, TasksPerNode) {
  EXPECT_EQ(slurm_tasks_on_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 0), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 3), 1);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 4), std::nullopt);
  for (const char* bad : {"", "x", "2(x", "2(x3", "2(3)", "-1"}) {
    EXPECT_EQ(slurm_tasks_on_node(bad, 0), std::nullopt) << bad;
  }
}

TEST(PortFromJobIdTest, StaysBelowTheEphemeralPortsAndDiffersBetweenJobs) {
  std::set<int> ports;
  for (int job = 0; job < 1000; ++job) ports.insert(port_from_job_id(std::to_string(job)));
  EXPECT_GE(*ports.begin(), 20000);
  EXPECT_LT(*ports.rbegin(), 30000);
  EXPECT_GT(ports.size(), 900u);
}

}  // namespace
}  // namespace gradwire::bootstrap
