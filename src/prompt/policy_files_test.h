// For tests: the golden policy with what it is expected to say, and policy files that a test writes.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/ordered_json.h"

namespace millrace {

// Written by tests/golden/make_keep_policy.py: networks policy, shot and token, of 19 inputs.
struct GoldenPolicy {
  std::string path;
  nlohmann::ordered_json expected;
  std::vector<std::vector<float>> vectors;

  explicit GoldenPolicy(const std::string& source_dir)
      : path(source_dir + "/tests/golden/keep_policy/policy.safetensors") {
    std::ifstream file(source_dir + "/tests/golden/keep_policy/probabilities.json");
    expected = nlohmann::ordered_json::parse(file, nullptr, false);
    vectors = expected["vectors"].get<std::vector<std::vector<float>>>();
  }
};

struct PolicyTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A safetensors file that is removed at the end.
struct TemporaryPolicy {
  std::string path;

  explicit TemporaryPolicy(const std::vector<PolicyTensor>& tensors) {
    static int number = 0;
    path = (std::filesystem::temp_directory_path() /
            ("policy_" + std::to_string(getpid()) + "_" + std::to_string(number++) + ".safetensors"))
               .string();
    nlohmann::ordered_json header;
    std::string data;
    for (const PolicyTensor& one : tensors) {
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(one.values.data()), one.values.size() * sizeof(float));
      header[one.name] = {{"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", {begin, data.size()}}};
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t size = text.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << text << data;
  }
  ~TemporaryPolicy() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  TemporaryPolicy(const TemporaryPolicy&) = delete;
};

}  // namespace millrace
