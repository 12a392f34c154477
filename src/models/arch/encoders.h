// Functions that the encoders in models/arch/ share.
#pragma once

#include "models/arch.h"

namespace millrace {

// Makes every layer bidirectional. Errors (in `config`): unsupported (a causal model).
void set_encoder(ConfigReader& config, ArchSpec& spec);

// Makes every layer bidirectional as set_encoder() does, with BERT's LayerNorms behind sums and behind the embeddings.
void set_bert_encoder(ConfigReader& config, ArchSpec& spec);

}  // namespace millrace
