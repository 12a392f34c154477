// The text files of a Hugging Face folder: tokenizer, chat templates and generation defaults.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Reads tokenizer.json, else tokenizer.model, else vocab.json + merges.txt; then applies special_tokens_map.json,
// tokenizer_config.json and generation_config.json. model.tokenizer stays empty if the folder has none.
Result<void> read_huggingface_tokenizer(ModelFiles& model, const std::filesystem::path& folder,
                                        const nlohmann::ordered_json& config);

// chat_template.jinja, else chat_template.json, else tokenizer_config.json's chat_template (text, or a list of named
// ones); then additional_chat_templates/NAME.jinja.
Result<void> read_chat_templates(ModelFiles& model, const std::filesystem::path& folder);

// generation_config.json.
Result<void> read_generation_config(ModelFiles& model, const std::filesystem::path& folder);

}  // namespace millrace
