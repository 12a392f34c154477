// The text files of a Hugging Face folder: tokenizer, chat templates and generation defaults.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Reads tokenizer.json, else tokenizer.model, else vocab.json and merges.txt; then applies special_tokens_map.json,
// tokenizer_config.json and generation_config.json. model.tokenizer stays empty if the folder has no tokenizer.
Result<void> read_huggingface_tokenizer(ModelFiles& model, const std::filesystem::path& folder,
                                        const nlohmann::ordered_json& config);

// Reads chat_template.jinja, else chat_template.json, else chat_template of tokenizer_config.json, which is a text or a
// list of named templates; then reads additional_chat_templates/NAME.jinja.
Result<void> read_chat_templates(ModelFiles& model, const std::filesystem::path& folder);

// Reads generation_config.json.
Result<void> read_generation_config(ModelFiles& model, const std::filesystem::path& folder);

}  // namespace millrace
