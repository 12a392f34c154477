// ModelFacts: facts about a model from its files, without loading it: a digest that identifies it to clients, its
// family and its quantization. Cached until the files change. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace millrace {

struct ModelFiles;
struct ModelStatus;

struct ModelFact {
  std::string digest;  // 64 hexadecimal digits: SHA-256 over the files' sizes, their beginnings and samples of the rest
  int64_t bytes = 0;   // size of the files
  int64_t modified = 0;      // Unix seconds; 0: unknown
  std::string family;        // "llama"; "": unknown
  std::string quantization;  // "Q4_K_M"; "": unknown
  int64_t parameters = 0;    // 0: unknown
};

class ModelFacts {
 public:
  // `may_open`: how many more models may be opened to read their metadata; decremented for each one opened.
  ModelFact of(const ModelStatus& model, int& may_open);

 private:
  std::mutex mutex_;
  std::map<std::string, ModelFact> known_;  // by path, size and modification time
};

// The common name of the format of most matrix values: the name in the file's metadata if it agrees with its tensors.
std::string quantization_name(const ModelFiles& files);

}  // namespace millrace
