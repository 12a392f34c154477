// Fuzzes the GGUF reader: any bytes are a model or an error, and every tensor of a model is within them.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "loader/model_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const uint8_t> image(data, size);
  auto model = millrace::open_gguf_image(image, "fuzz.gguf");
  if (!model.ok()) {
    if (model.error().message.empty() || model.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const millrace::StoredTensor& stored : model->tensors) {
    if (stored.offset > size || static_cast<uint64_t>(stored.tensor.bytes) > size - stored.offset) std::abort();
    if (model->find(stored.name) != &stored) std::abort();
  }
  (void)millrace::check_finite(*model);  // reads every byte of every tensor
  return 0;
}
