#include "evaluate/gguf_pooling.h"

#include "evaluate/pooling.h"

namespace millrace {

Result<int64_t> gguf_pooling_type(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::huggingface && files.architecture.ends_with("ForSequenceClassification"))
    return 4;
  MILLRACE_TRY(const Pooling pooling, model_pooling(files));
  switch (pooling) {  // frozen: llama.cpp's
    case Pooling::none: return 0;
    case Pooling::mean: return 1;
    case Pooling::cls: return 2;
    case Pooling::last: return 3;
  }
  return 0;
}

}  // namespace millrace
