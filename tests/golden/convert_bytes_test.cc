// Conversion against files that another program wrote: every tensor of a converted golden model has the bytes of the
// same tensor in the model's other file kind. A round trip alone would also pass if both directions had the same rows
// in a wrong order.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "golden/stored_bytes.h"
#include "models/convert/convert.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Those whose two files differ by more than names and the order of rows: roundings of norms, factors of rotations,
// masks, factors of matrices, and heads that one of the two files repeats.
bool differs_by_values(const std::string& name) {
  for (const char* family :
       {"gemma", "gpt2", "llama_bf16", "llama_sharded", "llama3", "phi3_longrope", "phi4", "mixtral", "qwen2moe",
        "qwen3moe", "mamba", "deepseek", "gates", "falcon_h1", "qwen3next", "qwen35"})
    if (name.starts_with(family)) return true;
  return false;
}

std::vector<std::string> names_with_both_files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden")) {
    const std::string name = entry.path().filename();
    if (fs::exists(entry.path() / "model.gguf") && fs::exists(entry.path() / "model.safetensors") &&
        fs::exists(entry.path() / "expected.json") && !differs_by_values(name))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

class ConvertBytes : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "millrace_bytes_XXXXXX").string();
    scratch_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(scratch_, ignored);
  }
  fs::path golden() const { return fs::path(MILLRACE_SOURCE_DIR) / "tests/golden" / GetParam(); }
  void convert(const fs::path& from, const fs::path& to, const std::string& format = "") const {
    ThreadPool pool(2);
    const auto report = convert_model({from, to, format, "", false, {}}, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->left_out.empty());
  }

  // Folders that store the rows of experts in turns are read and not written.
  bool writes_folder(const fs::path& from, const fs::path& to) const {
    if (!GetParam().starts_with("gpt_oss")) return true;
    ThreadPool pool(2);
    const auto report = convert_model({from, to, "", "", false, {}}, pool);
    EXPECT_FALSE(report.ok());
    if (!report.ok()) {
      EXPECT_EQ(report.error().kind, ErrorKind::unsupported);
      EXPECT_NE(report.error().message.find("convert to GGUF"), std::string::npos) << report.error().message;
    }
    return false;
  }

  fs::path scratch_;
};

TEST_P(ConvertBytes, AreThoseOfTheOtherFile) {
  convert(golden(), scratch_ / "there.gguf");
  expect_same_bytes(bytes_in(scratch_ / "there.gguf"), bytes_in(golden() / "model.gguf"));
  if (!writes_folder(golden() / "model.gguf", scratch_ / "folder")) return;
  convert(golden() / "model.gguf", scratch_ / "folder");
  expect_same_bytes(bytes_in(scratch_ / "folder"), bytes_in(golden()));
}

// Matrices that opening separates are joined again.
TEST_P(ConvertBytes, OfAFolderToAFolderAreTheSame) {
  if (!writes_folder(golden(), scratch_ / "same")) return;
  convert(golden(), scratch_ / "same");
  expect_same_bytes(bytes_in(scratch_ / "same"), bytes_in(golden()));
}

INSTANTIATE_TEST_SUITE_P(All, ConvertBytes, ::testing::ValuesIn(names_with_both_files()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace millrace
