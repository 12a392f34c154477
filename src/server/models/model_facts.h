// ModelFacts: what a model's files tell of it without being loaded: a digest by which clients know it, the names of its
// family and its quantization. Read once for each state of the files. Thread-safe.
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
  int64_t bytes = 0;   // of the files
  int64_t modified = 0;      // Unix seconds; 0: not known
  std::string family;        // "llama"; "": not known
  std::string quantization;  // "Q4_K_M"; "": not known
  int64_t parameters = 0;    // 0: not known
};

class ModelFacts {
 public:
  // `may_open`: how many models' files may be opened for what their digests do not need; counted down.
  ModelFact of(const ModelStatus& model, int& may_open);

 private:
  std::mutex mutex_;
  std::map<std::string, ModelFact> known_;  // by path, size and time of change
};

// What most of the matrices are stored in, by the name that people give it: the file's own, where that fits its
// tensors.
std::string quantization_name(const ModelFiles& files);

}  // namespace millrace
