// A copy of a small model's folder whose tokenizer or configuration a test changes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "base/ordered_json.h"
#include "run/language_model.h"

namespace millrace::testing {

class EditedModel {
 public:
  // `source`: the source tree; `model`: a folder of tests/golden/.
  EditedModel(const std::string& source, const std::string& name, const std::string& model = "llama")
      : path(std::filesystem::path(::testing::TempDir()) / (name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy(std::filesystem::path(source) / "tests/golden" / model / file, path / file);
  }
  ~EditedModel() { std::filesystem::remove_all(path); }
  EditedModel(const EditedModel&) = delete;

  void edit(const std::string& file, const std::function<void(nlohmann::ordered_json&)>& change) const {
    auto json = nlohmann::ordered_json::parse(std::ifstream(path / file));
    change(json);
    std::ofstream(path / file) << json;
  }
  // Token 93 becomes the first byte of "é", token 92 the second.
  void with_two_bytes() const {
    edit("tokenizer.json", [](nlohmann::ordered_json& json) {
      auto& vocab = json["model"]["vocab"];
      vocab.erase("~");
      vocab.erase("}");
      vocab["\u00c3"] = 93;
      vocab["\u00a9"] = 92;
    });
  }
  void without_tokenizer() const {
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) std::filesystem::remove(path / file);
  }
  std::shared_ptr<const LanguageModel> load(const LoadOptions& given = {}) const {
    LoadOptions options = given;
    options.threads = 1;
    auto model = LanguageModel::load(path, options);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    return model.ok() ? *model : nullptr;
  }

  const std::filesystem::path path;
};

}  // namespace millrace::testing
