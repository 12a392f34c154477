#include "run/model_sampling.h"

namespace millrace {

SamplingOptions model_sampling(const ModelFiles& files) {
  SamplingOptions options;
  const GenerationDefaults& own = files.generation;
  if (own.temperature) options.temperature = *own.temperature;
  if (own.top_p) options.top_p = *own.top_p;
  if (own.min_p) options.min_p = *own.min_p;
  if (own.top_k) options.top_k = *own.top_k;
  if (own.repetition_penalty) options.repetition_penalty = *own.repetition_penalty;
  return options;
}

}  // namespace millrace
