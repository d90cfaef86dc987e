// What is read from the environments that mpirun, torchrun and srun make.
#include "rendezvous/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "rendezvous/groups.h"

namespace mkernel::test {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

Launch launch_of(const Variables& variables) {
  std::optional<Launch> launch = value_of(detect_launch(environment_of(variables)));
  EXPECT_TRUE(launch);
  return launch.value_or(Launch{});
}

std::string error_of(const Variables& variables) {
  return detect_launch(environment_of(variables)).status().message();
}

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "gpu1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "prterun-h-17@1"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "6"},
                          {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[003-005,7]"}};

void expect_place(const Launch& launch, Launcher launcher, uint32_t rank, uint32_t world,
                  uint32_t local_rank) {
  EXPECT_STREQ(launcher_name(launch.launcher), launcher_name(launcher));
  EXPECT_EQ(launch.rank, rank);
  EXPECT_EQ(launch.world, world);
  EXPECT_EQ(launch.local_rank, local_rank);
}

TEST(Launcher, NothingIsSaidWhereNoLauncherIs) {
  EXPECT_FALSE(*detect_launch(environment_of({})));
  EXPECT_FALSE(*detect_launch(environment_of({{"RANK", "x"}}))) << "a word that anybody may use";
  EXPECT_FALSE(*detect_launch(environment_of({{"MASTER_ADDR", "gpu1"}})));
}

TEST(Launcher, ReadsTorchrun) {
  const Launch launch = launch_of(kTorchrun);
  expect_place(launch, Launcher::kTorchrun, 3, 8, 1);
  EXPECT_EQ(launch.address.substr(0, 5), "gpu1:");
  EXPECT_NE(launch.address, "gpu1:29500") << "the port of torch's own store";
  // A restarted run is another run.
  const Launch restarted = launch_of(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(restarted.run_id, launch.run_id);
}

TEST(Launcher, ReadsOpenMpi) {
  const Launch launch = launch_of(kOpenMpi);
  expect_place(launch, Launcher::kOpenMpi, 2, 4, 2);
  EXPECT_EQ(launch.address.substr(0, 10), "127.0.0.1:");
  EXPECT_EQ(launch.address, launch_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).address);
  Variables older = with(kOpenMpi, {{"OMPI_MCA_ess_base_jobid", "12345"}});
  older.erase("PMIX_NAMESPACE");
  EXPECT_NE(launch_of(older).run_id, launch.run_id);
  EXPECT_FALSE(launch_of(older).address.empty());
}

TEST(Launcher, ReadsMpichWhichGivesNoJobId) {
  const Launch launch = launch_of(kMpich);
  expect_place(launch, Launcher::kMpich, 1, 2, 1);
  EXPECT_TRUE(launch.address.empty());
  EXPECT_NE(launch.why_no_address.find("RendezvousOptions::address"), std::string::npos);
  EXPECT_EQ(value_of(options_of_launch({.address = "h:21000"}, launch)).address, "h:21000");
  const Status no_port = options_of_launch({.address = "h"}, launch).status();
  EXPECT_NE(no_port.message().find("host:port"), std::string::npos) << no_port.message();
  EXPECT_EQ(
      value_of(options_of_launch({.address = "h", .run_id = "mine"}, launch)).address.find("h:2"),
      0U);
  EXPECT_FALSE(launch_of(with(kMpich, {{"PMI_JOBID", "9"}})).address.empty());
}

TEST(Launcher, ReadsSlurm) {
  const Launch launch = launch_of(kSlurm);
  expect_place(launch, Launcher::kSlurm, 5, 6, 1);
  EXPECT_EQ(launch.address.substr(0, 7), "gpu003:");
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu7"}})).address.substr(0, 10),
            "127.0.0.1:");
  EXPECT_EQ(launch_of(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "7"}})).world, 7U);
}

TEST(Launcher, ABatchScriptIsNoTask) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(*detect_launch(environment_of(script)));
}

TEST(Launcher, WhoStartedThisProcessComesBeforeWhoStartedItsAgent) {
  const Variables all = with(with(with(kSlurm, kMpich), kOpenMpi), kTorchrun);
  EXPECT_EQ(launch_of(all).launcher, Launcher::kTorchrun);
  EXPECT_EQ(launch_of(with(with(kSlurm, kMpich), kOpenMpi)).launcher, Launcher::kOpenMpi);
  EXPECT_EQ(launch_of(with(kSlurm, kMpich)).launcher, Launcher::kMpich);
  // srun --mpi=pmi2 sets these too.
  EXPECT_EQ(launch_of(with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}})).launcher,
            Launcher::kSlurm);
}

TEST(Launcher, PortsAreBelowThoseThatSystemsGiveOut) {
  for (int i = 0; i < 1000; ++i) {
    const std::string address =
        launch_of(with(kSlurm, {{"SLURM_JOB_ID", std::to_string(i)}})).address;
    const int port = std::stoi(address.substr(address.find(':') + 1));
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 29000);
  }
}

TEST(Launcher, GivenAddressComesFirst) {
  const auto address_of = [](const std::string& given) {
    return value_of(options_of_launch({.address = given}, launch_of(kSlurm))).address;
  };
  EXPECT_EQ(address_of("10.0.0.1:4000"), "10.0.0.1:4000");
  EXPECT_EQ(address_of("[::1]:4000"), "[::1]:4000");
  EXPECT_EQ(address_of("other").substr(0, 6), "other:");
  const std::string several =
      launch_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}})).why_no_address;
  EXPECT_NE(several.find("only 3 of 4 ranks"), std::string::npos) << several;
}

TEST(Launcher, OptionsOfTheUserComeBeforeTheLauncher) {
  const Launch launch = launch_of(kSlurm);
  RendezvousOptions options = value_of(options_of_launch({}, launch));
  EXPECT_EQ(options.rank, 5U);
  EXPECT_EQ(options.address, launch.address);
  EXPECT_EQ(options.run_id, launch.run_id);
  options = value_of(options_of_launch({.address = "h:1", .run_id = "mine"}, launch));
  EXPECT_EQ(options.address, "h:1");
  EXPECT_EQ(options.run_id, "mine");
  EXPECT_FALSE(options_of_launch({}, launch_of(kMpich)));
}

struct BadCase {
  const char *name, *variable, *value, *allowed;
};
void PrintTo(const BadCase& c, std::ostream* out) { *out << c.name; }

class BadEnvironment : public testing::TestWithParam<BadCase> {};

TEST_P(BadEnvironment, IsRefusedAndNamed) {
  const BadCase& c = GetParam();
  const std::string variable = c.variable;
  const Variables& base = variable.starts_with("OMPI")    ? kOpenMpi
                          : variable.starts_with("SLURM") ? kSlurm
                          : variable.starts_with("PMI")   ? kMpich
                                                          : kTorchrun;
  Variables variables = with(base, {{variable, c.value}});
  if (std::string(c.value) == "(none)") variables.erase(variable);
  const std::string error = error_of(variables);
  EXPECT_NE(error.find(variable), std::string::npos) << error;
  EXPECT_NE(error.find(c.allowed), std::string::npos) << error;
  if (variables.contains(variable)) {
    EXPECT_NE(error.find(c.value), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadEnvironment,
    testing::Values(BadCase{"NoNumber", "RANK", "x3", "from 0 to 7 (WORLD_SIZE is 8)"},
                    BadCase{"Negative", "RANK", "-1", "from 0 to 7"},
                    BadCase{"Empty", "RANK", "", "from 0 to 7"},
                    BadCase{"Trailing", "RANK", "3 ", "from 0 to 7"},
                    BadCase{"RankBeyondWorld", "RANK", "8", "from 0 to 7"},
                    BadCase{"NoWorld", "WORLD_SIZE", "(none)", "missing"},
                    BadCase{"WorldOfNone", "WORLD_SIZE", "0", "from 1 to 65536"},
                    BadCase{"WorldWraps", "WORLD_SIZE", "4294967297", "from 1 to 65536"},
                    BadCase{"LocalRank", "LOCAL_RANK", "2", "from 0 to 1"},
                    BadCase{"LocalBeyondWorld", "LOCAL_WORLD_SIZE", "9", "WORLD_SIZE is 8"},
                    BadCase{"NoPort", "MASTER_PORT", "(none)", "a port from 1 to 65535"},
                    BadCase{"Port", "MASTER_PORT", "65536", "a port from 1 to 65535"},
                    BadCase{"Mpi", "OMPI_COMM_WORLD_RANK", "4", "OMPI_COMM_WORLD_SIZE is 4"},
                    BadCase{"MpiNoSize", "OMPI_COMM_WORLD_SIZE", "(none)", "missing"},
                    BadCase{"Mpich", "PMI_RANK", "2", "PMI_SIZE is 2"},
                    BadCase{"Slurm", "SLURM_PROCID", "6", "SLURM_NTASKS is 6"},
                    BadCase{"NoList", "SLURM_STEP_NODELIST", "(none)", "a list of hosts"},
                    BadCase{"List", "SLURM_STEP_NODELIST", "gpu[1", "a list of hosts"}),
    [](const auto& param) { return param.param.name; });

TEST(HostList, FirstHostIsTheFirstNumberOfEveryBracket) {
  const auto first = [](const std::string& list) { return value_of(first_host_of(list)); };
  EXPECT_EQ(first("a").name, "a");
  EXPECT_TRUE(first("a").is_only);
  EXPECT_TRUE(first("a[07]").is_only);
  EXPECT_EQ(first("a[07]").name, "a07");
  EXPECT_EQ(first("a,b").name, "a");
  EXPECT_FALSE(first("a,b").is_only);
  EXPECT_EQ(first("rack[2-3]-node[010-012,7],x").name, "rack2-node010");
  EXPECT_EQ(first("n[1,3]-ib.cluster.org").name, "n1-ib.cluster.org");
  EXPECT_FALSE(first("n[1-2]").is_only);
  for (const char* list : {"", ",a", "a,", "[", "a[", "a]", "a[]", "a[-2]", "a[x]", "a b", "a[1"}) {
    EXPECT_FALSE(first_host_of(list)) << list;
  }
}

}  // namespace
}  // namespace mkernel::test
