#include <gtest/gtest.h>

#include <fstream>

#include "network/topology.h"

namespace mkernel::test {
namespace {

namespace fs = std::filesystem;

/// A tree like /sys, of devices that are given by their way from a host bridge.
class Sysfs {
 public:
  Sysfs() {
    std::string name = fs::temp_directory_path() / "sysfs.XXXXXX";
    root_ = mkdtemp(name.data());
    fs::create_directories(root_ / "bus/pci/devices");
  }
  ~Sysfs() { fs::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;

  void add_pci(const fs::path& way, int numa_node) {
    const fs::path device = root_ / "devices" / way;
    fs::create_directories(device);
    std::ofstream(device / "numa_node") << numa_node << "\n";
    fs::create_directory_symlink(device, root_ / "bus/pci/devices" / way.filename());
  }
  void add_nic(const std::string& name, const fs::path& way, int numa_node) {
    add_pci(way, numa_node);
    const fs::path nic = root_ / "class/infiniband" / name;
    fs::create_directories(nic);
    fs::create_directory_symlink(root_ / "devices" / way, nic / "device");
  }
  void add_software_nic(const std::string& name) {
    fs::create_directories(root_ / "class/infiniband" / name);
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

/// Half of a machine with eight GPUs: two switches, each with two GPUs and two NICs, and a NIC of
/// the board; and a NIC of the other socket.
struct Machine : Sysfs {
  Machine() {
    for (const std::string s : {"1", "2"}) {
      const std::string port = "pci0000:" + s + "0/0000:" + s + "0:01.0/0000:" + s + "1:00.0/";
      add_pci(port + "0000:" + s + "2:00.0/0000:" + s + "3:00.0", 0);
      add_pci(port + "0000:" + s + "2:01.0/0000:" + s + "4:00.0", 0);
      const int first = s == "1" ? 9 : 11;
      add_nic("mlx5_" + std::to_string(first), port + "0000:" + s + "2:02.0/0000:" + s + "5:00.0",
              0);
      add_nic("mlx5_" + std::to_string(first + 1),
              port + "0000:" + s + "2:03.0/0000:" + s + "6:00.0", 0);
    }
    add_nic("mlx5_0", "pci0000:10/0000:10:02.0/0000:17:00.0", 0);
    add_nic("mlx5_1", "pci0000:80/0000:80:01.0/0000:81:00.0", 1);
    add_software_nic("rxe0");
  }
};

std::vector<std::string> listed(const std::vector<NicDistance>& nics) {
  std::vector<std::string> lines;
  for (const NicDistance& nic : nics) lines.push_back(nic.name + ": " + name_of(nic.distance));
  return lines;
}

TEST(Topology, NearestNicsComeFirst) {
  const Machine machine;
  Result<std::vector<NicDistance>> nics = nics_by_distance(machine.root(), "0000:13:00.0");
  ASSERT_TRUE(nics) << nics.status().message();
  EXPECT_EQ(listed(*nics),
            (std::vector<std::string>{"mlx5_9: PCI switch", "mlx5_10: PCI switch",
                                      "mlx5_0: root complex", "mlx5_11: NUMA node",
                                      "mlx5_12: NUMA node", "rxe0: far", "mlx5_1: far"}));
}

TEST(Topology, GpusOfOneSwitchTakeDifferentNics) {
  const Machine machine;
  std::vector<std::vector<NicDistance>> nics_of_gpu;
  for (const char* const gpu : {"0000:13:00.0", "0000:14:00.0", "0000:23:00.0", "0000:24:00.0"}) {
    Result<std::vector<NicDistance>> nics = nics_by_distance(machine.root(), gpu);
    ASSERT_TRUE(nics);
    nics_of_gpu.push_back(*nics);
  }
  using Names = std::vector<std::vector<std::string>>;
  EXPECT_EQ(assign_nics(nics_of_gpu, 1),
            (Names{{"mlx5_9"}, {"mlx5_10"}, {"mlx5_11"}, {"mlx5_12"}}));
  EXPECT_EQ(assign_nics(nics_of_gpu, 2), (Names{{"mlx5_9", "mlx5_10"},
                                                {"mlx5_9", "mlx5_10"},
                                                {"mlx5_11", "mlx5_12"},
                                                {"mlx5_11", "mlx5_12"}}));
  EXPECT_EQ(assign_nics(nics_of_gpu, 9)[0].size(), 7u) << "as many as there are";
}

TEST(Topology, CandidatesOfAGpuComeInTheOrderInWhichTheySuitIt) {
  const Machine machine;
  using Names = std::vector<std::string>;
  const PciPlace second{.gpus = {"0000:13:00.0", "0000:14:00.0"}, .own = 1};
  const Names all = {"mlx5_0", "mlx5_1", "mlx5_10", "mlx5_9", "new", "rxe0"};
  EXPECT_EQ(in_order_of_distance(all, second, machine.root(), {}),
            (Names{"mlx5_10", "mlx5_9", "mlx5_0", "rxe0", "mlx5_1", "new"}));
  const Names few = {"mlx5_0", "mlx5_9"};  // the other one of the switch has no place here
  EXPECT_EQ(in_order_of_distance(few, second, machine.root(), {}), (Names{"mlx5_9", "mlx5_0"}));
}

TEST(Topology, CandidatesStayAsTheyAreWithoutAGpuOrWithOneThatIsNotKnown) {
  const Machine machine;
  using Names = std::vector<std::string>;
  const Names names = {"mlx5_1", "mlx5_0"};
  EXPECT_EQ(in_order_of_distance(names, {}, machine.root(), {}), names);
  std::string logged;
  const auto log = [&](const std::string& line) { logged += line; };
  EXPECT_EQ(in_order_of_distance(names, {.gpus = {"0000:99:00.0"}}, machine.root(), log), names);
  EXPECT_NE(logged.find("0000:99:00.0"), std::string::npos) << logged;
}

TEST(Topology, UnknownNumaNodesAreNotTheSameNode) {
  Sysfs machine;
  machine.add_pci("pci0000:00/0000:00:01.0", -1);
  machine.add_nic("mlx5_0", "pci0000:80/0000:80:01.0", -1);
  Result<std::vector<NicDistance>> nics = nics_by_distance(machine.root(), "0000:00:01.0");
  ASSERT_TRUE(nics);
  EXPECT_EQ(listed(*nics), std::vector<std::string>{"mlx5_0: far"});
}

TEST(Topology, MachineWithoutNicsHasNoneAndOneWithoutTheGpuSaysSo) {
  Sysfs machine;
  machine.add_pci("pci0000:00/0000:00:01.0", 0);
  Result<std::vector<NicDistance>> nics = nics_by_distance(machine.root(), "0000:00:01.0");
  ASSERT_TRUE(nics);
  EXPECT_TRUE(nics->empty());
  const Status status = nics_by_distance(machine.root(), "0000:99:00.0").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("0000:99:00.0"), std::string::npos);
}

}  // namespace
}  // namespace mkernel::test
