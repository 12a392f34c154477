// Writes GGUF v3 files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian, with tensors aligned
// to 32 bytes. The file appears under its name only when it is complete. gguf.h describes the layout. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/format.h"

namespace millrace {

class GgufWriter {
 public:
  // Setting a key again keeps its position and replaces the value.
  void set_u32(std::string_view key, uint32_t value);
  void set_u64(std::string_view key, uint64_t value);
  void set_i32(std::string_view key, int32_t value);
  void set_f32(std::string_view key, float value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, const std::vector<std::string>& values);
  void set_f32s(std::string_view key, const std::vector<float>& values);
  void set_i32s(std::string_view key, const std::vector<int32_t>& values);
  void set_bools(std::string_view key, const std::vector<bool>& values);
  void set_bytes(std::string_view key, const std::vector<uint8_t>& values);
  void remove(std::string_view key);  // no effect if the key is absent

  // `dims`: outermost first, as in Tensor (GGUF stores them innermost first). `produce` is called once during write()
  // and must fill all of the tensor's bytes.
  using Produce = std::function<Result<void>(uint8_t* destination, int64_t bytes)>;
  void add_tensor(std::string name, const Format* format, std::vector<int64_t> dims, Produce produce);

  // Writes the file. `progress` is called with the bytes written so far and the total; may be null. Holds one tensor in
  // memory at a time. Errors: user (an invalid tensor, a path that cannot be written), unsupported (a format without
  // GGUF type), resource (disk full), or the error of `produce`. On failure nothing is left behind.
  Result<void> write(const std::string& path, const std::function<void(int64_t, int64_t)>& progress = {}) const;

 private:
  struct Entry {
    std::string key;
    std::string encoded;  // type and value, as on disk
  };
  struct PendingTensor {
    std::string name;
    const Format* format;
    std::vector<int64_t> dims;
    Produce produce;
  };
  struct Plan;  // the file's head and the tensors' offsets

  void set(std::string_view key, std::string encoded);
  Result<Plan> plan() const;

  std::vector<Entry> entries_;
  std::vector<PendingTensor> tensors_;
};

}  // namespace millrace
