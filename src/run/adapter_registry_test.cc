// Adapters by name: how names are read, how many one engine and one request may have, and what a mix is made of.
#include "run/adapter_registry.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/ordered_json.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string adapter_golden(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name;
}

std::shared_ptr<const LanguageModel> adapted_model() {
  auto model = LanguageModel::load(adapter_golden("llama3/model.gguf"), {.threads = 1});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

template <typename T>
std::string text_of_error(const Result<T>& result, ErrorKind kind) {
  if (result.ok()) return "";
  EXPECT_EQ(result.error().kind, kind) << result.error().message;
  return result.error().message;
}

TEST(AdapterRegistry, NamesOfFilesAndFolders) {
  using Named = std::pair<std::string, std::string>;
  for (const auto& [given, named] : {std::pair<std::string, Named>{"style=/a/b.gguf", {"style", "/a/b.gguf"}},
                                     {"style=", {"style", ""}},
                                     {"a=b=c", {"a", "b=c"}},
                                     {"=x", {"", "x"}},
                                     {"/a/style.gguf", {"style", "/a/style.gguf"}},
                                     {"style.safetensors", {"style", "style.safetensors"}},
                                     {"/a/style.v2.gguf", {"style.v2", "/a/style.v2.gguf"}},
                                     {"/a/style.gguf/", {"style", "/a/style.gguf/"}},
                                     {"/a/style/", {"style", "/a/style/"}},
                                     {"/a/style", {"style", "/a/style"}},
                                     {"/a/.gguf", {".gguf", "/a/.gguf"}},
                                     {"x.gguf", {"x", "x.gguf"}},
                                     {"/a/gguf", {"gguf", "/a/gguf"}},
                                     {"/a/b.bin", {"b.bin", "/a/b.bin"}},
                                     {"", {"", ""}}})
    EXPECT_EQ(named_adapter(given), named) << given;
}

TEST(AdapterRegistry, NamesHave256Characters) {
  AdapterRegistry registry(adapted_model());
  const std::string path = adapter_golden("lora/llama3/adapter.gguf"),
                    wrong = "adapter: a name has 1 to 256 characters";
  EXPECT_EQ(text_of_error(registry.load("", path), ErrorKind::user), wrong);
  EXPECT_EQ(text_of_error(registry.load(std::string(257, 'x'), path), ErrorKind::user), wrong);
  EXPECT_EQ(text_of_error(registry.load(std::string(256, 'x'), path), ErrorKind::user), "");
  EXPECT_EQ(text_of_error(registry.load("y", path), ErrorKind::user), "");
  ASSERT_EQ(registry.list().size(), 2u);
  EXPECT_EQ(registry.list()[0].name, std::string(256, 'x'));
  EXPECT_EQ(registry.list()[1].name, "y");
  EXPECT_EQ(registry.list()[1].path, path);
  EXPECT_GT(registry.list()[1].rank, 0);
  EXPECT_FALSE(registry.load("z", "/nowhere").ok());
  EXPECT_TRUE(registry.unload("y"));
  EXPECT_FALSE(registry.unload("y"));
  EXPECT_EQ(registry.list().size(), 1u);
}

TEST(AdapterRegistry, UsesOfARequest) {
  AdapterRegistry registry(adapted_model());
  EXPECT_EQ(text_of_error(registry.find({{"style", 1}}), ErrorKind::user),
            "adapter 'style': is not loaded; there is none");
  EXPECT_TRUE(registry.find({})->empty());
  const std::string path = adapter_golden("lora/llama3");
  ASSERT_TRUE(registry.load("b", path).ok());
  ASSERT_TRUE(registry.load("a", path).ok());
  EXPECT_EQ(text_of_error(registry.find({{"a", 1}, {"style", 1}}), ErrorKind::user),
            "adapter 'style': is not loaded; there are: a, b");
  EXPECT_EQ(registry.find(std::vector<AdapterUse>(16, {"a", 1}))->size(), 16u);
  EXPECT_EQ(text_of_error(registry.find(std::vector<AdapterUse>(17, {"a", 1})), ErrorKind::user),
            "adapters: at most 16 for one request, got 17");
  for (double scale : {1e6, -1e6, 0.5}) EXPECT_EQ(registry.find({{"a", scale}})->size(), 1u) << scale;
  for (double scale : {1.000001e6, -1.000001e6, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(text_of_error(registry.find({{"a", scale}}), ErrorKind::user),
              "adapter 'a': scale must be between -1000000 and 1000000")
        << scale;
  const auto mix = registry.find({{"b", 0.5}, {"a", 0}, {"b", -2}});
  ASSERT_TRUE(mix.ok());
  ASSERT_EQ(mix->size(), 2u);  // one of scale 0 adds nothing
  EXPECT_EQ((*mix)[0].scale, 0.5f);
  EXPECT_EQ((*mix)[1].scale, -2.0f);
  const std::string id = (*mix)[0].adapter->identity();
  EXPECT_EQ(adapter_identity(*mix), id + "*0.5;" + id + "*-2;");
  EXPECT_EQ(adapter_identity({}), "");
}

// An adapter of one matrix and rank 1, which loads quickly.
void write_small_adapter(const fs::path& folder) {
  const nlohmann::ordered_json config = {{"peft_type", "LORA"}, {"r", 1}, {"lora_alpha", 1}, {"bias", "none"}};
  std::ofstream(folder / "adapter_config.json") << config;
  const std::string name = "base_model.model.model.layers.0.self_attn.k_proj.lora_";
  nlohmann::ordered_json head;
  head[name + "A.weight"] = {{"dtype", "F32"}, {"shape", {1, 64}}, {"data_offsets", {0, 256}}};
  head[name + "B.weight"] = {{"dtype", "F32"}, {"shape", {32, 1}}, {"data_offsets", {256, 384}}};
  std::string text = head.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::ofstream(folder / "adapter_model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << text << std::string(384, '\0');
}

// label(once): registers thousands of adapters
TEST(AdapterRegistry, IsFullAt4096) {
  AdapterRegistry registry(adapted_model());
  const fs::path path = fs::path(::testing::TempDir()) / ("adapter_registry_" + std::to_string(getpid()));
  fs::remove_all(path);
  fs::create_directories(path);
  write_small_adapter(path);
  for (size_t i = 0; i < AdapterRegistry::kMaxAdapters; ++i)
    ASSERT_TRUE(registry.load("a" + std::to_string(i), path).ok()) << i;
  EXPECT_EQ(text_of_error(registry.load("one more", path), ErrorKind::resource),
            "adapters: 4096 are loaded already; unload one");
  EXPECT_TRUE(registry.load("a7", path).ok());  // in the place of one of the same name
  EXPECT_TRUE(registry.unload("a9"));
  EXPECT_TRUE(registry.load("one more", path).ok());
  EXPECT_EQ(registry.list().size(), 4096u);
  fs::remove_all(path);
}

}  // namespace
}  // namespace millrace
