// A damaged file given to /models/load was answered with 500, which clients retry and operators take for a fault of the
// server. The tests of loading used valid files and paths that do not exist.
#include <filesystem>
#include <fstream>

#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST(ModelLoadStatus, ABadFileIsAClientError) {
  const fs::path folder = fs::temp_directory_path() / ("millrace_bad_models_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string good = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama/model.gguf";
  ASSERT_TRUE(fs::exists(good));
  auto registry = *ModelRegistry::create({});
  ASSERT_TRUE(registry->add({.name = "m", .path = good}).ok());
  auto server = *Server::start(std::move(registry), ServiceOptions{.local_only = true}, HttpLimits{.port = 0});
  const auto load = [&](const std::string& path) {
    return post(server->port(), "/models/load", Json{{"model", "m"}, {"path", path}}.dump());
  };
  std::string bytes(fs::file_size(good), '\0');
  std::ifstream(good, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::string corrupt = bytes;
  corrupt.replace(0, 4, "GGUX");
  const std::pair<const char*, std::string> files[] = {{"empty.gguf", ""},
                                                       {"noise.gguf", std::string(5000, '\x5a')},
                                                       {"cut.gguf", bytes.substr(0, bytes.size() / 2)},
                                                       {"head.gguf", bytes.substr(0, 40)},
                                                       {"magic.gguf", corrupt}};
  for (const auto& [name, content] : files) {
    std::ofstream(folder / name, std::ios::binary) << content;
    const Response refused = load(folder / name);
    EXPECT_EQ(refused.status, 400) << name << ": " << refused.body;
    EXPECT_GT(refused.json().value(Json::json_pointer("/error/message"), "").size(), 10u) << refused.body;
  }
  EXPECT_EQ(load(folder).status, 400);
  EXPECT_EQ(load(good).status, 200);
  server.reset();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
