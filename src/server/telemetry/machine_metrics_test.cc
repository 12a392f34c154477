#include "server/telemetry/machine_metrics.h"

#include <gtest/gtest.h>

#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class Energy : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& domain, const std::string& file, const std::string& text) {
    fs::create_directories(folder_ / domain);
    std::ofstream(folder_ / domain / file) << text << '\n';
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) / "powercap";
};

TEST_F(Energy, CountersWrap) {
  write("intel-rapl:0", "name", "package-0");
  write("intel-rapl:0", "energy_uj", "900000");
  write("intel-rapl:0", "max_energy_range_uj", "1000000");
  EnergyMeter meter(folder_);
  ASSERT_EQ(meter.read().size(), 1u);
  EXPECT_EQ(meter.read()[0].name, "package-0");
  EXPECT_DOUBLE_EQ(meter.read()[0].joules, 0);
  write("intel-rapl:0", "energy_uj", "950000");
  EXPECT_DOUBLE_EQ(meter.read()[0].joules, 0.05);
  write("intel-rapl:0", "energy_uj", "50000");
  EXPECT_DOUBLE_EQ(meter.read()[0].joules, 0.15);
}

TEST_F(Energy, OnlyPackagesWithUniqueNames) {
  for (const char* domain : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl-mmio:0", "dtpm"}) {
    write(domain, "name", "package");
    write(domain, "energy_uj", "1");
  }
  const auto domains = EnergyMeter(folder_).read();
  ASSERT_EQ(domains.size(), 2u);
  EXPECT_NE(domains[0].name, domains[1].name);
}

TEST_F(Energy, AbsentOrUnreadableCountersAreSkipped) {
  EXPECT_TRUE(EnergyMeter(folder_ / "nowhere").read().empty());
  write("intel-rapl:0", "name", "package-0");
  EXPECT_TRUE(EnergyMeter(folder_).read().empty());
  write("intel-rapl:0", "energy_uj", "not a number");
  EXPECT_TRUE(EnergyMeter(folder_).read().empty());
}

}  // namespace
}  // namespace millrace
