// Where the packed weights of a model are kept: beside it, or in the user's cache folder, or nowhere.
#include "run/plan/packed_cache_path.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class PackedCachePath : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      before_.push_back({name, value ? std::optional<std::string>(value) : std::nullopt});
    }
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) set(name.c_str(), value ? value->c_str() : nullptr);
    fs::remove_all(folder_);
  }
  static void set(const char* name, const char* value) {
    if (value)
      ::setenv(name, value, 1);
    else
      ::unsetenv(name);
  }
  static std::string hashed(const std::string& path) {
    return fmt::format("{}-{:016x}.millrace-packed", fs::path(path).filename().string(),
                       XXH3_64bits(path.data(), path.size()));
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("packed_cache_path_" + std::to_string(getpid()));

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(PackedCachePath, IsBesideTheModel) {
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", nullptr);
  const fs::path file = folder_ / "model.gguf";
  std::ofstream(file) << "x";
  EXPECT_EQ(default_packed_cache_path(file), file.string() + ".millrace-packed");
  const std::string in_folder = (folder_ / (folder_.filename().string() + ".millrace-packed")).string();
  EXPECT_EQ(default_packed_cache_path(folder_), in_folder);
  EXPECT_EQ(default_packed_cache_path(folder_.string() + "/"), in_folder);
  EXPECT_EQ(default_packed_cache_path(folder_.string() + "/./x/../model.gguf"), file.string() + ".millrace-packed");
}

// The folder of the model cannot be written: it does not exist.
TEST_F(PackedCachePath, IsInTheCacheFolderElsewhere) {
  const std::string model = "/nowhere/at/all/model.gguf";
  const fs::path cache = folder_ / "cache", home = folder_ / "home";
  set("XDG_CACHE_HOME", cache.c_str());
  set("HOME", home.c_str());
  EXPECT_EQ(default_packed_cache_path(model), (cache / "millrace" / hashed(model)).string());
  EXPECT_TRUE(fs::is_directory(cache / "millrace"));
  EXPECT_NE(default_packed_cache_path("/nowhere/else/model.gguf"), default_packed_cache_path(model));
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    set("XDG_CACHE_HOME", none);
    set("HOME", home.c_str());
    EXPECT_EQ(default_packed_cache_path(model), (home / ".cache" / "millrace" / hashed(model)).string());
    EXPECT_TRUE(fs::is_directory(home / ".cache" / "millrace"));
    set("HOME", none);
    EXPECT_EQ(default_packed_cache_path(model), "");
  }
  const fs::path file = folder_ / "file";
  std::ofstream(file) << "x";
  set("XDG_CACHE_HOME", file.c_str());  // no folder can be made in it
  EXPECT_EQ(default_packed_cache_path(model), "");
}

}  // namespace
}  // namespace millrace
