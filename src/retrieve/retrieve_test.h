// Shared by the tests of the index: a folder of the test's own, and vectors without a model.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <string>

#include "retrieve/document_index.h"

namespace millrace {

class IndexFolder {
 public:
  IndexFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("millrace_index_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::remove_all(path_);
  }
  ~IndexFolder() { std::filesystem::remove_all(path_); }
  IndexFolder(const IndexFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// A text's vector is the normalized sum of one random vector for each of its words.
class HashedWords final : public TextVectors {
 public:
  explicit HashedWords(int64_t width = 48, uint64_t seed = 0) : width_(width), seed_(seed) {}
  int64_t width() const override { return width_; }
  int64_t computed = 0;  // documents' texts so far

  Result<std::vector<std::vector<float>>> of_documents(std::span<const std::string> texts) override {
    computed += std::ssize(texts);
    std::vector<std::vector<float>> out;
    for (const std::string& text : texts) out.push_back(of(text));
    return out;
  }
  Result<std::vector<float>> of_question(const std::string& text) override { return of(text); }

 private:
  std::vector<float> of(const std::string& text) const {
    std::vector<float> out(static_cast<size_t>(width_), 1e-3f);
    std::string word;
    for (const char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c))) {
        word += c;
        continue;
      }
      if (word.empty()) continue;
      std::mt19937_64 random(std::hash<std::string>()(word) ^ seed_);
      for (float& value : out) value += static_cast<float>(random() >> 40) / static_cast<float>(1 << 24) - 0.5f;
      word.clear();
    }
    double sum = 0;
    for (const float value : out) sum += static_cast<double>(value) * value;
    for (float& value : out) value = static_cast<float>(value / std::sqrt(sum));
    return out;
  }

  const int64_t width_;
  const uint64_t seed_;
};

inline IndexSettings settings_of(TextVectors& vectors) {
  IndexSettings out;
  out.embedder = "test";
  out.width = vectors.width();
  out.probe = std::move(vectors.of_documents(std::vector<std::string>{std::string(kProbeText)})->front());
  out.chunks.max_bytes = 200;
  return out;
}

// A text of random words of a vocabulary whose frequencies fall as in language.
inline std::string random_text(std::mt19937_64& random, size_t words, size_t vocabulary = 2000) {
  std::string out;
  for (size_t i = 0; i < words; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    const auto word = static_cast<size_t>(std::pow(static_cast<double>(vocabulary), u)) - 1;
    out += "w" + std::to_string(word) + (i % 9 == 8 ? ". " : " ");
  }
  return out;
}

template <typename T>
T got(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return std::move(*result);
}

}  // namespace millrace
