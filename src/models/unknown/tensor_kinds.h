// Kinds of tensors: a name without the numbers of its layer and its expert, "blk.*.attn_q.weight". Files of different
// families are compared by their kinds.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "loader/model_files.h"
#include "models/arch.h"

namespace millrace {

// Numbers between dots become "*". Prefixes of the names in Hugging Face folders that checkpoints add or leave out
// ("model.", "language_model.") are removed. An expert of a GGUF file has the kind of the stack of all experts.
std::string tensor_kind(std::string_view name);
// The kind of a rule's name, in which {l} and {e} are numbers.
std::string pattern_kind(std::string_view pattern);

// Returns true for tensors without learned values: rope factors and causal masks, which follow from the configuration.
bool is_derived_tensor(std::string_view name);

// The first tensor of each kind, without derived ones.
std::map<std::string, const StoredTensor*> tensor_kinds(const ModelFiles& files);

// Returns true for tensors of encoders of pictures and sound, and of the matrices that map their outputs to tokens'
// rows.
bool is_media_tensor(std::string_view name);

// Returns the number of the tensor's layer; -1: it belongs to no layer.
int64_t layer_number(std::string_view name);

std::string shape_text(const Tensor& tensor);  // "[32, 128]"

}  // namespace millrace
