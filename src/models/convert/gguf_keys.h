// Metadata of a GGUF file that belongs neither to the architecture nor to the tokenizer. Stateless.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "loader/gguf_writer.h"
#include "loader/model_files.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// A number, boolean, string or flat array; numbers are stored in 32 bits if they fit. False: no GGUF type can hold it.
bool set_json(GgufWriter& writer, const std::string& key, const nlohmann::ordered_json& value);

void set_general_keys(GgufWriter& writer, std::string_view architecture, const std::string& name,
                      const std::vector<OutputTensor>& tensors);
void set_file_type(GgufWriter& writer, const std::vector<OutputTensor>& tensors);
// `values`: those of all matrices, by the name of their format.
void set_file_type(GgufWriter& writer, const std::map<std::string_view, int64_t>& values);
void set_generation_keys(GgufWriter& writer, const ModelFiles& files);
void set_template_keys(GgufWriter& writer, const ModelFiles& files);
// Copies the arrays that ModelFiles::config does not store.
void set_tokenizer_arrays(GgufWriter& writer, const TokenizerSpec& spec);

}  // namespace millrace
